"""Operation counts, measured errors and sentences of the Winograd lesson."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import reference, winograd, winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import transform_2d
from kernels.ladders import find
from kernels.model.program import WORKSPACE
from kernels.model.verify import relative_error
from tests.helpers.recordings import recordings
from tests.helpers.rows_of import a_full_row
from visuals.conv.winograd import charts, notes
from visuals.conv.winograd.charts import MEASURED, NAMES, TILES, error_caption, error_chart, errors, recorded, work
from visuals.conv.winograd.notes import BASE, LIBRARY, NONFUSED, winograd_cost, winograd_examples, winograd_gain
from visuals.palette import DARK, LIGHT

LAYER = CONV_PRESETS["resnet50-res4-3x3-n32"].shape
TOY = CONV_PRESETS["toy"].shape
shapes = st.builds(
    lambda N, C, n, K, pad: ConvShape(N, C, n, n, K, 3, 3, pad=pad),
    st.integers(1, 4),
    st.integers(1, 600),
    st.integers(3, 60),
    st.integers(1, 600),
    st.integers(0, 2),
)


# -- counted -----------------------------------------------------------------------------------------
@settings(max_examples=25)
@given(shapes, st.sampled_from(TILES))
def test_work_equals_the_program(s, m):
    """FLOPs are those that the rung predicts, bytes are those of its buffers."""
    rung = find(NONFUSED)
    program = rung.build(s, rung.default_tiles | {"M": m})
    counted = work(s, m)
    assert counted.flops == winograd.flops(s, m)
    assert {name: getattr(counted, name) for name in "UVZ"} == {b.name: b.nbytes for b in program.of_role(WORKSPACE)}


def test_figures_of_the_papers():
    """Lavin and Gray (arXiv 1509.09308), section 4.1: F(2x2, 3x3) has 32 additions for the data and 24 for the
    inverse."""
    assert [winograd_matrices.multiplications_2d(m, 3) for m in TILES] == [(36, 16), (144, 36), (324, 64)]
    t = winograd_matrices.derive(2, 3)
    assert winograd_matrices.operations_2d(t.BT).flops == 32 and winograd_matrices.operations_2d(t.AT).flops == 24


def test_sentences_name_the_best_tile_or_that_none_saves():
    m = min(TILES, key=lambda m: work(LAYER, m).flops)
    text, counted = charts.work_details(LAYER), work(LAYER, m)
    share = 100 * counted.flops / LAYER.flops
    assert charts.work_sentence(LAYER) == (
        f"{m}×{m} executes the fewest FLOPs: {share:.0f} % of those of direct convolution."
    )
    assert (
        f"{100 * counted.transforms / counted.flops:.2g} % of the FLOPs of {m}×{m}" in text
        or f"{100 * counted.transforms / counted.flops:.0f} % of the FLOPs of {m}×{m}" in text
    )
    assert "No tile size saves FLOPs here: even 2×2" in charts.work_sentence(TOY)
    assert charts.tile_sentence() == "A tile of 2×2 outputs needs 16 multiplications instead of 36."


def test_bars_add_up_the_products_and_the_transforms():
    products, transforms = charts.work_chart(LAYER, LIGHT).data
    assert list(products.y) == ["direct", "2×2", "4×4", "6×6"]
    assert (products.x[0], transforms.x[0]) == (LAYER.flops, 0)
    totals = [a + b for a, b in zip(products.x, transforms.x, strict=True)]
    assert totals[1:] == [work(LAYER, m).flops for m in TILES]


# -- measured ----------------------------------------------------------------------------------------
def test_errors_grow_with_the_tile_and_the_stored_type():
    measured = errors(64)
    single, half = measured["FP32"], measured["FP16"]
    assert single[2] < single[4] < single[6] < single[8] / 10
    assert half[0] < half[2] < half[4] < half[6]
    assert all(half[m] > 100 * single[m] for m in (0, *TILES))
    assert 1e-8 < single[0] < 1e-6 and 1e-5 < half[0] < 1e-3


@pytest.mark.parametrize("m", TILES)
def test_measured_error_equals_that_of_the_cpu_kernels(m):
    """The rung itself on similar numbers has the same error within a factor of 2."""
    s = ConvShape(1, 64, 26, 26, 4, 3, 3)
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=s.x_shape).astype("f4"), rng.normal(size=s.w_shape).astype("f4")
    rung = find(NONFUSED)
    program = rung.build(s, rung.default_tiles | {"M": m})
    arrays = {b.name: np.zeros(b.shape, b.dtype) for b in program.buffers} | {"x": x, "w": w}
    for step in program.steps:
        step.cpu(*(arrays[a] if isinstance(a, str) else a for a in step.args))
    exact, _ = reference.conv(s, x=x, w=w)
    assert 0.5 < errors(64)["FP32"][m] / relative_error(arrays["y"], exact) < 2


def test_wrong_transform_increases_the_error(monkeypatch):
    monkeypatch.setattr(charts, "transform_2d", lambda X, d: transform_2d(np.abs(X), d))
    assert errors.__wrapped__(4)["FP32"][2] > 0.1


def test_fp16_overflow_is_mentioned_and_not_drawn():
    measured = {"FP32": dict.fromkeys(MEASURED, 1e-6), "FP16": dict.fromkeys(MEASURED, 1e-3) | {8: np.inf}}
    figure = error_chart(measured, [], LIGHT)
    assert [list(line.x) for line in figure.data] == [list(NAMES.values()), list(NAMES.values())[:-1]]
    assert "FP16 overflows for 8×8" in error_caption(64, measured)
    assert "overflows" not in error_caption(64, measured | {"FP16": measured["FP32"]})


def test_error_caption_has_the_measured_ratios():
    measured = {
        "FP32": {0: 1e-7, 2: 2e-7, 4: 1e-6, 6: 3e-6, 8: 1e-4},
        "FP16": {0: 2e-4, 2: 4e-4, 4: 4e-3, 6: 8e-3, 8: 1.0},
    }
    assert charts.error_sentence(measured) == ("In FP32, 2×2 has 2× the error of direct convolution, and 6×6 has 30×.")
    text = error_caption(512, measured)
    assert "512 channels" in text and "2×2: 2×, 4×4: 10×, 6×6: 30×, 8×8: 1,000×" in text
    assert "4.0e-03, 20× that of direct convolution" in text
    assert "1 channel:" in error_caption(1, measured)


# -- recorded ----------------------------------------------------------------------------------------
def row(rung: str, s: ConvShape = LAYER, ms: float = 0.1, spread: float = 0.01, tiles=None, **more) -> dict:
    rung_of_row = find(rung)
    return a_full_row(
        rung=rung,
        shape=s.params(),
        tiles=dict(rung_of_row.default_tiles | (tiles or {})),
        engine="cuda",
        median_ms=ms,
        p20_ms=ms * (1 - spread),
        p80_ms=ms * (1 + spread),
        device="a GPU",
        flops=s.flops,
        **more,
    )


def test_recorded_errors_are_at_their_tile(monkeypatch):
    rows = (
        row(BASE, error=1e-7),
        row("conv/winograd-2x2", error=2e-7),
        row("conv/winograd-4x4", error=3e-6),
        row(NONFUSED, error=4e-6),
        row(NONFUSED, tiles={"M": 6}, error=8e-6),
        row(NONFUSED, tiles={"BN": 64}, error=9.0),
        row(LIBRARY, error=5.0),
        row(NONFUSED, s=TOY, error=7.0),
    )
    with recordings(*rows):
        recorded_rows = recorded(LAYER)
    assert [(m, r["error"]) for m, _, r in recorded_rows] == [(0, 1e-7), (2, 2e-7), (4, 3e-6), (4, 4e-6), (6, 8e-6)]
    for tokens in (LIGHT, DARK):
        marks = error_chart(errors(1), recorded_rows, tokens).data[-1]
        assert list(marks.x) == ["direct", "2×2", "4×4", "4×4", "6×6"] and list(marks.y)[-1] == 8e-6
    assert recorded(LAYER.with_(K=7)) == []


# -- the notes ---------------------------------------------------------------------------------------
def by_rung(*rows: dict) -> dict[str, dict]:
    return {r["rung"]: r for r in rows}


def test_gain_is_empty_without_rows():
    assert winograd_gain({}) == "" and winograd_gain(by_rung(row(BASE))) == ""


def test_gain_has_effective_and_actual_rates():
    steps = row(
        NONFUSED,
        ms=0.1,
        parts_ms={"winograd_filter": 0.01, "winograd_input": 0.02, "winograd_product": 0.06, "winograd_output": 0.01},
    )
    text = winograd_gain(by_rung(row(BASE, ms=0.2), steps, row("conv/winograd-2x2", ms=0.15), row(LIBRARY, ms=0.3)))
    assert "Winograd in steps (4×4) is 2× as fast as implicit GEMM." in text
    flops = find(NONFUSED).cost(LAYER, find(NONFUSED).build(LAYER, steps["tiles"])).flops
    assert f"as if it were direct convolution, is {LAYER.flops / 0.1e-3 / 1e12:.3g} TFLOP/s" in text
    assert f"actual rate is {flops / 0.1e-3 / 1e12:.3g} TFLOP/s" in text and flops < LAYER.flops
    assert "Its transforms take 40 % of the time of all steps." in text
    assert "3× as fast as cuDNN WINOGRAD_NONFUSED" in text and "× the time of" not in text


def test_loss_has_its_reason():
    fused = row("conv/winograd-2x2", s=TOY, ms=0.3, parts_ms={"winograd_filter": 0.1, "winograd_fused": 0.2})
    text = winograd_gain(by_rung(row(BASE, s=TOY, ms=0.1), fused))
    assert "Winograd 2×2 (fused) takes 3× the time of implicit GEMM." in text
    assert "transforms the filters takes 33 % of the time of all steps" in text
    assert "The transforms cost more FLOPs than the products save. With C = 1 and K = 2" in text
    assert "0.667 products" in text and "9 tiles" in text
    steps = row(NONFUSED, ms=0.3)
    lost = winograd_gain(by_rung(row(BASE, ms=0.1), steps))
    counted = work(LAYER, 4)
    assert (
        f"{counted.transforms / counted.moved:.3g} FLOP per byte that they move, so memory bandwidth limits them"
        in lost
    )


def test_overlapping_spreads_are_no_gain():
    text = winograd_gain(by_rung(row(BASE, ms=0.1, spread=0.2), row("conv/winograd-4x4", ms=0.09, spread=0.2)))
    assert "No measurable difference" in text and "× as fast" not in text and "× the time" not in text


@settings(max_examples=20)
@given(shapes)
def test_the_cost_names_the_workspaces(s):
    counted, text = work(s, 4), winograd_cost(s)
    assert all(f"{name} {notes.units.bytes_(getattr(counted, name))}" in text for name in "UVZ")


def test_cost_of_an_unsupported_shape_is_its_rule():
    assert "R and S must be 3, got 5 and 3" in winograd_cost(TOY.with_(R=5))


def test_examples_are_computed_from_recordings(monkeypatch):
    two = CONV_PRESETS["resnet50-res2-3x3-n1"].shape
    rows = (
        row(BASE, ms=0.3),
        row(NONFUSED, ms=0.1),
        row(BASE, s=two, ms=0.1),
        row("conv/winograd-2x2", s=two, ms=0.2),
        hot(row(NONFUSED, s=TOY)),
        hot(row(BASE, s=TOY)),
    )
    with recordings(*rows):
        examples = winograd_examples.__wrapped__()
    assert [caption for _, caption in examples] == ["ResNet-50 res4 3×3, N=32: 3×", "ResNet-50 res2 3×3, N=1: 0.5×"]


def hot(one: dict) -> dict:
    return one | {"mode": "hot"}
