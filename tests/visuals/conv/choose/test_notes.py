"""Sentences of the lesson on choosing: every number in them is compared with the rows and the formulas."""

from __future__ import annotations

import re

import pytest

from kernels import records
from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from kernels.records import availability
from tests.helpers.offenders import every
from tests.helpers.race_rows import LADDER, timed
from tests.helpers.rows_of import CEILINGS
from visuals.conv.choose import notes
from visuals.conv.choose.families import FAMILIES, family

SHAPE = CONV_PRESETS["resnet50-res3-3x3-n32"].shape  # 7.4 GFLOP


def gain(**ms: float) -> str:
    rows = {f"conv/{name.replace('_', '-')}": t for name, t in ms.items()}
    return notes.gain({name: timed(name, SHAPE, t, ceilings=CEILINGS) for name, t in rows.items()})


def test_winner_with_fewer_flops_has_both_rates():
    text = gain(winograd_nonfused=0.5, implicit_gemm=0.7)
    assert text.startswith(
        "The fastest is Winograd in steps. Its effective rate, as if it were direct convolution, is 14.8 TFLOP/s."
    )
    part = float(re.search(r"at ([\d.]+) TFLOP/s", text)[1]) / 14.8
    assert part == pytest.approx(float(re.search(r"executes ([\d.]+)× the FLOPs", text)[1]), rel=0.01) and part < 0.3
    assert "its FP32 peak is 10 TFLOP/s" in text  # of CEILINGS: direct convolution could not reach 14.8


def test_winner_with_equal_or_unknown_flops():
    assert "executes as many FLOPs as direct convolution" in gain(implicit_gemm=1.0, direct=9.0)
    assert "FP32 peak" not in gain(implicit_gemm=1.0, direct=9.0)
    assert "library does not report" in gain(cudnn_winograd=1.0, direct=9.0)
    assert gain(direct=1.0) == ""


def test_rungs_with_overlapping_spreads_are_named():
    assert gain(implicit_gemm=1.0, fft=1.0005, direct=2.0).endswith(
        "No measurable difference from FFT: their spreads overlap."
    )


@every("key", CONV_PRESETS | CONV_LAYER_PRESETS)
def test_predictions_cover_the_supported_rungs(key):
    shape = (CONV_PRESETS | CONV_LAYER_PRESETS)[key].shape
    titles, rows = notes.predicted(shape, "cuda")
    rungs = availability.supported_rungs(LADDER, "emulator", shape)
    assert titles == [rung.title for rung in rungs] and {len(cells) for cells in rows.values()} == {len(rungs)}
    assert rows["FLOPs / direct convolution"][titles.index("implicit GEMM")] == "1.00×"
    assert notes.cost(shape)


def test_examples_are_presets_where_the_family_is_fastest():
    examples = notes.examples()
    assert examples
    for preset, caption in examples:
        rows = [r for rung in LADDER.rungs if (r := records.recorded(rung.name, preset.shape, rung.default_tiles))]
        first = min(rows, key=lambda row: row["median_ms"])
        assert caption.startswith(f"{family(first['rung']).title}: {preset.label}, ")
        others = [r["median_ms"] for r in rows if family(r["rung"]) != family(first["rung"])]
        assert caption.endswith(f"{min(others) / first['median_ms']:.2g}×")
    assert len(examples) <= len(FAMILIES)
