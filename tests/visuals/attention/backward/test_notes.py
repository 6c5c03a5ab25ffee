"""Sentences about attention's backward pass, and its memory over N."""

from __future__ import annotations

from kernels.attention.backward.ladder import LADDER
from kernels.attention.backward.presets import BACKWARD_PRESETS
from kernels.attention.backward.shape import AttentionBackwardShape
from visuals.attention import charts
from visuals.attention.backward.notes import ATOMIC, BACKWARD, NAIVE, TWO

LIBRARY = "attention-backward/library"
SHAPE = AttentionBackwardShape(4, 16, 2048, 64)


def row(rung: str, ms: float, spread: float = 0.01) -> dict:
    return {
        "rung": rung,
        "engine": "cuda",
        "device": "H200",
        "median_ms": ms,
        "p20_ms": ms * (1 - spread),
        "p80_ms": ms * (1 + spread),
        "shape": SHAPE.params(),
        "tiles": {},
    }


def test_the_cost_names_the_bytes_and_the_products():
    text = BACKWARD.cost(SHAPE)
    assert "P and dS take 2.15 GB" in text and "5 products" in text and "7 products" in text
    assert "D: 524 KB" in text


def test_the_gain_compares_with_memory_with_two_kernels_and_with_pytorch():
    rows = {name: row(name, ms) for name, ms in ((NAIVE, 40.0), (ATOMIC, 4.0), (TWO, 6.0), (LIBRARY, 5.2))}
    text = BACKWARD.gain(rows)
    assert "10× as fast as" in text and "1.5× as fast as" in text and "1.3× as fast as" in text
    slower = BACKWARD.gain({ATOMIC: row(ATOMIC, 4.0), LIBRARY: row(LIBRARY, 2.0)})
    assert "reaches 50" in slower
    same = BACKWARD.gain({ATOMIC: row(ATOMIC, 4.0), NAIVE: row(NAIVE, 4.01, spread=0.1)})
    assert "do not differ measurably" in same
    assert BACKWARD.gain({NAIVE: row(NAIVE, 4.0)}) == ""


def test_examples_are_presets():
    assert {preset.key for preset, _ in BACKWARD.examples()} <= BACKWARD_PRESETS.keys()


def test_memory_over_n_has_a_line_for_n_squared_and_one_for_the_others():
    shape, memory = SHAPE.with_(N=1024), [charts.DeviceMemory("H200", 141 * 10**9)]
    chart = charts.chart_of(LADDER.rungs, shape, memory)
    lines = {rung.name: line for line in chart.lines for rung in line.rungs}
    assert lines[ATOMIC] is lines[TWO] is not lines[NAIVE] and LIBRARY not in lines
    naive, flash = (charts.largest_N_in(LADDER.rung(name), SHAPE, memory[0].bytes) for name in (NAIVE, ATOMIC))
    assert flash > 50 * naive


def test_measured_peaks_are_of_this_ladder_only():
    rows = [row(ATOMIC, 4.0) | {"peak_bytes": 3 * 10**8, "tiles": LADDER.rung(ATOMIC).default_tiles}]
    (dot,) = charts.dots(rows, SHAPE, "measured", "attention-backward")
    assert dot.N == 2048 and dot.predicted == SHAPE.bytes + 4 * 64 * 2048
    assert charts.dots(rows, SHAPE, "measured") == []
