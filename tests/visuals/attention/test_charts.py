"""The attention lesson's charts and sentences: memory over N, traffic, gains and costs; and the inputs of its scene."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import traffic as attention_traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import attention as reference
from kernels.attention.shape import AttentionShape
from kernels.ladders import LADDERS
from kernels.machine import memory_levels
from kernels.runner import check_memory, run
from pages.parts.tiles import SelectedRung
from tests.helpers.rows_of import CEILINGS, a_full_row
from visuals.attention import charts as attention_charts
from visuals.attention import notes as attention_notes
from visuals.attention.charts import (
    LEGEND_CHARS,
    MAX_LABELS,
    DeviceMemory,
    allocated,
    chart_of,
    dots,
    largest_N_in,
    memory,
    memory_sentences,
)
from visuals.attention.inputs import KINDS, LARGEST, qkv
from visuals.attention.notes import attention_cost, attention_gain
from visuals.palette import DARK, LIGHT

LADDER = LADDERS["attention"]
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs}
SQUARES = "S and P are N × N per head."
LARGE = ATTENTION_PRESETS["attention-2048"].shape
GPU, HERE = DeviceMemory("a GPU", 150_000_000_000), DeviceMemory("a processor", 16_000_000_000)


# -- traffic -------------------------------------------------------------------------------------------
def loads_and_stores(name: str, s: AttentionShape, tiles: dict) -> int:
    total = run(f"attention/{name}", s, engine="emulator", tiles=tiles).counters.total
    return sum(total[f"{kind}_{way}"] for kind in ("bytes", "bulk_bytes") for way in ("ld", "st"))


def compiled(name: str, s: AttentionShape) -> list[dict]:
    return list(RUNGS[name].tile_sets(s))


@pytest.mark.parametrize("name", [name for name in attention_traffic.KERNELS if name in RUNGS])
@settings(max_examples=2)
@given(data=st.data())
def test_traffic_equals_the_emulators_counters(name, data):
    """To the byte, at any tile sizes that were compiled ahead."""
    dtype = data.draw(st.sampled_from(["fp16", "bf16"])) if "mma" in name else "fp32"
    B, H, N, d = (data.draw(st.integers(1, max_size)) for max_size in (2, 2, 45, 20))
    d = d if "wgmma" not in name else 8 * data.draw(st.integers(1, 3))
    s = AttentionShape(B, H, N, d, data.draw(st.integers(0, 1)), dtype=dtype)
    tiles = data.draw(st.sampled_from(compiled(name, s)))
    assert attention_traffic.requested_bytes(RUNGS[name], s, tiles) == loads_and_stores(name, s, tiles)


def test_library_traffic_is_unknown():
    for name, rung in RUNGS.items():
        s = LARGE.with_(M=77) if name in attention_traffic.VARIANT_KERNELS else LARGE
        requested = attention_traffic.requested_bytes(rung, s, rung.default_tiles)
        assert (requested is None) == bool(rung.library), name


@settings(max_examples=25)
@given(st.integers(1, 300), st.sampled_from([4, 8, 32]), st.sampled_from([8, 16]), st.integers(0, 1))
def test_tiles_visited_have_a_visible_key(N, queries, keys, causal):
    s = AttentionShape(1, 1, N, 4, causal)
    visible = np.arange(N)[:, None] >= np.arange(N) if causal else np.ones((N, N), bool)
    visited = sum(visible[i : i + queries, j : j + keys].any() for i in range(0, N, queries) for j in range(0, N, keys))
    assert attention_traffic.tiles_visited(s, queries, keys) == visited


def test_traffic_table_has_a_line_for_each_supported_rung():
    kernels = attention_charts.traffic(LADDER.rungs, LARGE, lambda rung: rung.default_tiles)
    titles, columns = attention_charts.traffic_table(kernels, LARGE)
    supported = [r for r in LADDER.rungs if attention_charts.runs(r, LARGE)]
    assert titles == [r.title for r in supported] and {len(cells) for cells in columns.values()} == {len(supported)}
    hbm, requested = (columns[name] for name in columns if "FLOP" not in name)
    assert hbm[titles.index("naive")] == "4.43 GB" and hbm[titles.index("flash attention")] == "134 MB"
    assert requested[titles.index("cuBLAS + our softmax")] == "–" and "–" not in hbm
    text = attention_charts.traffic_conclusion(kernels)
    assert text.startswith("Naive moves at least 4.43 GB to and from HBM") and text.endswith("only 134 MB.")


def test_traffic_sentences_count_blocks_and_hidden_tiles():
    flash = RUNGS["flash"]
    (plain,) = attention_charts.traffic_sentences(flash, LARGE, {"Br": 32, "Bc": 32})
    assert "64 blocks per head each load K and V" in plain and "one query per block, 2,048 blocks would" in plain
    _, hidden = attention_charts.traffic_sentences(flash, LARGE.with_(causal=1), {"Br": 32, "Bc": 32})
    assert "computes 51 % of the tiles of 32 × 32 scores, 2,080 of 4,096 per head" in hidden
    assert attention_charts.traffic_sentences(RUNGS["naive"], LARGE, {"BLOCK": 16}) == []


# -- memory over N -------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 16), st.integers(1, 128), st.sampled_from(["naive", "fused", "flash"]))
def test_largest_n_fits_and_the_next_does_not(B, H, d, name):
    s, rung = AttentionShape(B, H, 1, d), RUNGS[name]
    last = largest_N_in(rung, s, GPU.bytes)
    assert allocated(rung, s.with_(N=last)) <= GPU.bytes and attention_charts.runs(rung, s.with_(N=last))
    beyond = s.with_(N=last + 1)
    too_large = allocated(rung, beyond) > GPU.bytes or not attention_charts.runs(rung, beyond)
    assert too_large or last == attention_charts.MAX_N


def test_run_refuses_what_the_chart_shows_as_too_large(monkeypatch):
    """The chart and the runner count the same bytes."""
    monkeypatch.setattr("kernels.engines.cpu.free_bytes", lambda: 10**13)
    rung = RUNGS["naive"]
    last = largest_N_in(rung, LARGE, GPU.bytes)
    engine = type("Engine", (), {"free_bytes": staticmethod(lambda: GPU.bytes)})
    monkeypatch.setattr(
        "kernels.engines.load",
        lambda name: engine if name == "cuda" else type("Host", (), {"free_bytes": staticmethod(lambda: 10**13)}),
    )
    check_memory("cuda", LARGE, [rung.build(LARGE.with_(N=last), rung.default_tiles)])
    too_long = LARGE.with_(N=last + 1)
    with pytest.raises(ValueError, match=f"needs {allocated(rung, too_long):,} bytes of memory"):
        check_memory("cuda", too_long, [rung.build(too_long, rung.default_tiles)])


def test_rungs_with_equal_allocations_share_a_line_and_a_rule_ends_one():
    chart = chart_of(LADDER.rungs, LARGE, (HERE, GPU))
    titles = [[rung.name.partition("/")[2] for rung in line.rungs] for line in chart.lines]
    assert titles == [["naive", "blocked", "cublas"], ["fused"], ["flash", "flash-registers"]]
    ends = [line.last for line in chart.lines]
    assert ends[0] is None and ends[2] is None and ends[1] == largest_N_in(RUNGS["fused"], LARGE, 10**18)
    assert chart.device_memories == (GPU, HERE) and chart.right >= 4 * largest_N_in(RUNGS["naive"], LARGE, GPU.bytes)


@pytest.mark.parametrize("tokens", [LIGHT, DARK])
def test_figure_has_allocations_and_device_memories(tokens):
    chart = chart_of(LADDER.rungs, LARGE, (GPU, HERE))
    figure = memory(chart, tokens)
    line_traces = [trace for trace in figure.data if trace.mode == "lines"]
    assert [trace.name.replace("<br>", " ") for trace in line_traces] == [line.title for line in chart.lines]
    assert max(len(text) for trace in line_traces for text in trace.name.split("<br>")) <= LEGEND_CHARS
    assert len(figure.layout.xaxis.tickvals) <= MAX_LABELS
    for trace, line in zip(line_traces, chart.lines, strict=True):
        assert LARGE.N in trace.x
        assert list(trace.y) == [allocated(line.rungs[0], LARGE.with_(N=N)) for N in trace.x]
    horizontal = {shape.y0 for shape in figure.layout.shapes if shape.y0 == shape.y1}
    assert horizontal == {GPU.bytes, HERE.bytes}
    assert [a.text for a in figure.layout.annotations] == ["a GPU: 150 GB", "a processor: 16 GB"]
    (vertical,) = (shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1)
    assert vertical == LARGE.N


def test_sentences_name_the_n_that_each_device_can_hold():
    text = " ".join(memory_sentences(chart_of(LADDER.rungs, LARGE, (GPU, HERE)), SQUARES))
    naive, flash = RUNGS["naive"], RUNGS["flash"]
    assert "At N = 2,048, naive allocates 2.28 GB: 17× the 134 MB of flash attention" in text
    for device in (GPU, HERE):
        for title, rung in (("naive", naive), ("flash attention", flash)):
            last = largest_N_in(rung, LARGE, device.bytes)
            size = attention_charts.units.bytes_(device.bytes)
            assert f"On {device.device} ({size}), {title} fits up to N = {last:,}." in text
    assert "Fused, one row at a time ends at N = 57,792: 4*(N + d + BLOCK) bytes of shared memory" in text


def test_a_kernel_that_cannot_run_here_is_not_compared():
    s = ATTENTION_PRESETS["t5-bias"].shape
    chart = chart_of(LADDER.rungs, s, (GPU,))
    assert "attention/flash-decode" in [line.rungs[0].name for line in chart.lines if line.last]
    text = " ".join(memory_sentences(chart, SQUARES))
    assert "allocates" not in text and "Decoding, keys in parts ends at N = 64" in text


def test_no_chart_for_an_unsupported_type_and_no_ratio_for_equal_allocations():
    fp32 = [RUNGS[name] for name in ("naive", "fused", "flash")]
    assert chart_of(fp32, LARGE.with_(dtype="fp16"), (GPU,)) is None
    text = " ".join(memory_sentences(chart_of([RUNGS["naive"]], LARGE, (GPU,)), SQUARES))
    assert "×" not in text.replace("N × N", "") and "naive fits up to N = " in text


def test_memory_of_the_recorded_gpu():
    device = DeviceMemory.from_levels(memory_levels.recorded())
    assert device.device == "NVIDIA H200" and 140e9 < device.bytes < 160e9


# -- measured ------------------------------------------------------------------------------------------
def row(name: str, s: AttentionShape = LARGE, ms: float = 1.0, spread: float = 0.01, **more) -> dict:
    rung = RUNGS[name]
    program = rung.build(s, rung.default_tiles)
    return a_full_row(
        rung=rung.name,
        shape=s.params(),
        tiles=rung.default_tiles,
        flops=s.flops,
        median_ms=ms,
        p20_ms=ms * (1 - spread),
        p80_ms=ms * (1 + spread),
        predicted_bytes=rung.cost(s, program).bytes,
        **({"engine": "cuda", "device": "a GPU", "peak_bytes": program.nbytes()} | more),
    )


def rows_of(*rows: dict) -> dict[str, dict]:
    return {r["rung"]: r for r in rows}


def test_dots_are_gpu_peaks_of_this_shape_and_type():
    longer = LARGE.with_(N=8192)
    peaks = dots(
        [
            row("naive"),
            row("naive", peak_bytes=7),
            row("flash", longer),
            row("flash", LARGE.with_(causal=1, N=512)),
            row("naive", LARGE.with_(H=1)),
            row("naive", LARGE.with_(N=99), engine="cpu"),
            a_full_row(),
        ],
        LARGE,
        "recorded",
    )
    assert [(dot.rung, dot.N) for dot in peaks] == [
        ("attention/naive", 2048),
        ("attention/flash", 8192),
        ("attention/flash", 512),
    ]
    assert peaks[0].bytes == peaks[0].predicted == allocated(RUNGS["naive"], LARGE)
    assert len({*peaks, *peaks}) == 3  # pages cache charts by them
    chart = chart_of(LADDER.rungs, LARGE, (GPU,), peaks)
    (marks,) = [t for t in memory(chart, LIGHT).data if t.mode == "markers" and "recorded" in t.hovertemplate]
    assert list(marks.x) == [2048, 8192, 512]
    assert "3 measured peaks have a prediction. All equal it to the byte." in memory_sentences(chart, SQUARES)


def test_sentence_names_the_peak_farthest_from_its_prediction():
    longer = LARGE.with_(N=8192)
    higher_peak = row("naive", longer, peak_bytes=round(allocated(RUNGS["naive"], longer) * 1.02))
    chart = chart_of(LADDER.rungs, LARGE, (GPU,), dots([row("flash"), higher_peak], LARGE, "recorded"))
    assert "The largest deviation is that of naive at N = 8,192" in memory_sentences(chart, SQUARES)[-1]
    assert "2 % more than predicted" in memory_sentences(chart, SQUARES)[-1]


# -- the notes -----------------------------------------------------------------------------------------
def test_no_gain_without_flash_attention():
    assert attention_gain({}) == "" and attention_gain(rows_of(row("naive"), row("cublas"))) == ""


def test_gain_compares_with_the_fastest_stored_s_and_the_library():
    text = attention_gain(
        rows_of(
            row("naive", ms=9.0),
            row("blocked", ms=4.0),
            row("flash", ms=2.0),
            row("flash-registers", ms=1.0),
            row("cublas", ms=3.0),
            row("library", ms=0.5),
        )
    )
    assert "Flash attention, register tiles is 3× as fast as cuBLAS + our softmax" in text
    assert "reaches 50 % of the speed of PyTorch (memory-efficient)" in text and "slower" not in text


def test_loss_names_the_possible_saving():
    small = AttentionShape(1, 4, 128, 32)
    small_text = attention_gain(rows_of(row("naive", small, 1.0), row("flash", small, 2.0)))
    assert "Flash attention is slower here: 2× the time of naive" in small_text
    assert "S and P take 524 KB and fit in the cache of 33.6 MB" in small_text
    assert "Flash attention runs 16 blocks. A block has up to 4 tiles of keys" in small_text
    large_text = attention_gain(rows_of(row("naive", ms=20.0), row("flash", ms=40.0)))
    saved = (row("naive")["predicted_bytes"] - row("flash")["predicted_bytes"]) / CEILINGS["copy_bytes_per_s"]
    assert (
        f"moving them takes {saved * 1e3:.3g} ms" in large_text
        and f"{100 * saved / 0.02:.0f} % of the time of naive" in large_text
    )


def test_loss_on_a_cpu_names_the_tiles():
    s = AttentionShape(1, 4, 1024, 32)
    text = attention_gain(rows_of(row("naive", s, 1.0, engine="cpu"), row("flash", s, 2.0, engine="cpu")))
    assert "each tile costs several NumPy calls" in text and "there are 4,096 tiles of 32 × 32 scores" in text


def test_overlapping_spreads_are_no_gain():
    text = attention_gain(rows_of(row("naive", ms=1.0, spread=0.2), row("flash", ms=0.9, spread=0.2)))
    assert "do not differ measurably" in text and "× as" not in text


@settings(max_examples=25)
@given(st.integers(1, 8), st.integers(1, 16), st.integers(1, 9000), st.integers(1, 128), st.integers(0, 1))
def test_cost_names_s_and_p_and_flash_attentions_extra_work(B, H, N, d, causal):
    s = AttentionShape(B, H, N, d, causal)
    text = attention_cost(s)
    assert f"S and P take {attention_notes.units.bytes_(8 * B * H * N * N)}" in text
    blocks = -(-N // 32)
    assert f"{blocks:,} block{'s' * (blocks > 1)} of 32 queries per head" in text
    assert ("Causal attention uses" in text) == bool(causal)


def test_cost_uses_the_tiles_of_the_page():
    s = AttentionShape(1, 1, 16, 4)
    selected = SelectedRung(RUNGS["flash"], {"Br": 4, "Bc": 8})
    text = attention_cost(s, selected)
    assert "one tile of 4 × 8 scores per block instead: 128 B" in text
    assert "4 blocks of 4 queries per head each load K and V" in text and "each of 2 tiles of 8 keys" in text
    assert "one multiplication per 32 FLOPs" in text
    assert attention_notes.notes_of(selected).cost(s) == text
    # Of a kernel without such tiles, or of another type, the defaults of flash attention are used.
    for other in (
        SelectedRung(RUNGS["naive"], {"BLOCK": 8}),
        SelectedRung(RUNGS["flash-mma"], {"Br": 16, "Bc": 16, "WM": 16, "STAGES": 2}),
    ):
        assert attention_cost(s, other) == attention_cost(s)
    assert "16 × 16 scores" in attention_cost(s.with_(dtype="fp16"), other)


def test_p_has_half_the_bytes_of_s_at_16_bits():
    assert attention_notes.squares(LARGE.with_(dtype="fp16")) == 6 * 64 * 2048**2
    assert "128 × 64 scores" in attention_cost(LARGE.with_(dtype="bf16"))


def test_examples_come_from_recordings(monkeypatch):
    from kernels import records

    gpt2, bert = ATTENTION_PRESETS["gpt2"].shape, ATTENTION_PRESETS["bert"].shape
    ms = {(gpt2, "naive"): 3.0, (gpt2, "flash"): 1.0, (bert, "cublas"): 1.0, (bert, "flash-registers"): 2.0}
    monkeypatch.setattr(
        records,
        "recorded",
        lambda name, s, tiles, *rest: (t := ms.get((s, name.partition("/")[2]))) and row(name.partition("/")[2], s, t),
    )
    examples = attention_notes.attention_examples.__wrapped__()
    assert [text for _, text in examples] == ["GPT-2: 3×", "BERT: 0.5×"]


# -- inputs of the scene -------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_finite_and_reproducible(kind):
    s = AttentionShape(2, 3, 21, 5)
    first, second = qkv(s, kind), qkv(s, kind)
    for name in "QKV":
        assert first[name].shape == (1, 1, 21, 5) and first[name].dtype == np.float32
        assert np.isfinite(first[name]).all() and (first[name] == second[name]).all()


@pytest.mark.parametrize("causal", [0, 1])
def test_large_scores_overflow_without_the_maximum_only(causal):
    s = AttentionShape(1, 1, 16, 4, causal)
    inputs = qkv(s, "large")
    scores = s.factor * inputs["Q"][0, 0] @ inputs["K"][0, 0].T
    assert np.abs(scores).max() == pytest.approx(LARGEST)
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(scores.astype(np.float32))).any()
    out = run("attention/flash", s, inputs, engine="emulator", tiles={"Br": 4, "Bc": 8}).output
    assert np.isfinite(out).all()


def test_lookup_returns_the_matching_value():
    s = AttentionShape(1, 1, 16, 4)
    inputs = qkv(s, "lookup")
    out, _ = reference(s, **inputs)
    assert out[0, 0] == pytest.approx(inputs["V"][0, 0, ::-1])
