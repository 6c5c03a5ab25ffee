"""The scene of a chain: its cells are equal to the kernels' output and, block by block, to the reference. Its
bytes are those of the plan."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.fusion import codegen
from kernels.fusion.ladder import PLANS
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.reference import TOLERANCE, chain
from kernels.fusion.shape import ChainShape
from kernels.ladders import find
from kernels.runner import run
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.shapes import chain_shapes
from visuals.charts.roofline import Roof
from visuals.fusion import charts, notes, plan
from visuals.fusion.scene import fusion_scene
from visuals.scene.payload import payload

RUNGS = tuple(PLANS)
TILES = find("fusion/fused").default_tiles
GROUPS = (
    "conv:K=2:R=3 bias bn relu",
    "bn relu maxpool:2",
    "relu conv:K=2:R=3:stride=2 bn avgpool:2",
    "bn add relu gap bias",
    "bias bn relu add bias bn add relu",
)


def supported(rung: str, s: ChainShape) -> bool:
    return not any(find(rung).rules(s, find(rung).default_tiles))


def scenes(s: ChainShape):
    for rung in RUNGS:
        if supported(rung, s):
            yield rung, fusion_scene(s, rung, {})


def until(s: ChainShape, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the reference's maps after so many blocks of the chain, and the scale of the float32 tolerance."""
    if not blocks:
        return plan.inputs(s)["x"], np.zeros(s.x_shape)
    cut = ChainShape(*s.x_shape, " ".join(map(str, s.blocks[:blocks])))
    given = plan.inputs(s)
    return chain(cut, **{b.name: given[b.name] for b in PLANS["fusion/unfused"](cut, TILES).program.of_role("input")})


def close(cells: np.ndarray, s: ChainShape, blocks: int) -> bool:
    ref, scale = until(s, blocks)
    return bool((np.abs(cells - ref.ravel()) <= 4 * TOLERANCE * scale.ravel() + 1e-12).all())


def test_the_numbers_in_the_sentence_of_a_batch_norm_give_its_result():
    for rung, scene in scenes(ChainShape(1, 2, 4, 4, "bn gap")):
        said = next(text for t in range(scene.steps) if "Batch norm is applied" in (text := scene.caption(t)))
        numbers = said.partition("beta = ")[2].replace("−", "-")  # printed as a minus
        v, mean, gain, beta, result = map(float, re.findall(r"-?\d+(?:\.\d+)?", re.sub(r" - (?=[-\d])", " ", numbers)))
        assert result == pytest.approx((v - mean) * gain + beta, rel=1e-3), rung


# -- cells -----------------------------------------------------------------------------------------------------
@needs_nvrtc
@settings(max_examples=4, deadline=None)
@given(chain_shapes(max_extent=7, max_blocks=5))
def test_last_cells_equal_the_kernels_and_the_reference(s):
    small = plan.stage_shape(s)
    for rung, scene in scenes(s):
        result = run(rung, small, plan.inputs(small), engine="emulator")
        np.testing.assert_array_equal(scene.cells("y"), result.output.ravel())
        assert close(scene.cells("y"), small, len(small.blocks))


@needs_nvrtc
@settings(max_examples=4, deadline=None)
@given(chain_shapes(max_extent=6, max_blocks=5))
def test_every_row_of_registers_is_the_value_after_its_block(s):
    """For the unfused and the fused rung, the row of v after block k is the reference's map after it."""
    small = plan.stage_shape(s)
    for rung in ("fusion/unfused", "fusion/fused", "fusion/implicit-gemm"):
        if not supported(rung, s):
            continue
        scene = fusion_scene(s, rung, {})
        for n, part in enumerate(PLANS[rung](small, find(rung).default_tiles).parts, 1):
            kinds = [small.blocks[b].kind for b in part.blocks]
            rows = len(codegen.Group(0, tuple(kinds)).epilogue)
            if kinds in (["avgpool"], ["gap"]):  # divided as it is stored
                continue
            v = scene.tensor(f"v{n}")
            cells = scene.cells(v.name).reshape(-1, v.cols)
            for up in range(rows + 1):  # the first row: the output of the core, or the loaded values
                ref, scale = until(small, part.blocks[-1] + 1 - up)
                off = np.abs(cells[-1 - up] - ref.ravel()[: v.cols])
                assert (off <= 4 * TOLERANCE * scale.ravel()[: v.cols] + 1e-12).all(), (rung, n, up)


@pytest.mark.parametrize("words", GROUPS)
def test_bytes_end_at_the_plan_and_never_decrease(words):
    s = ChainShape(1, 2, 4, 4, words)
    for rung, scene in scenes(s):
        parts = PLANS[rung](s, find(rung).default_tiles).parts
        launches, read, written = (reading.values for reading in scene.readings)
        assert read[-1] == sum(p.reads for p in parts) and written[-1] == sum(p.writes for p in parts)
        assert (np.diff(read) >= 0).all() and (np.diff(written) >= 0).all()
        assert launches[-1] == len(parts) == len(set(launches))


def test_fused_rung_never_writes_the_maps_between():
    s = FUSION_PRESETS["fusion-toy"].shape
    unfused, fused = (fusion_scene(s, rung, {}) for rung in RUNGS[:2])
    assert {"t1", "t2", "t3"} <= {w.target for w in unfused.writes}
    air = [t for t in fused.tensors if t.name.startswith("never")]
    assert [t.title for t in air] == ["after conv", "after bias", "after bn"]
    assert not {t.name for t in air} & {w.target for w in fused.writes} and all(t.values is None for t in air)


def test_folded_weights_equal_the_formula():
    s = FUSION_PRESETS["fusion-toy"].shape
    scene, x = fusion_scene(s, "fusion/folded", {}), plan.inputs(s)
    gain = x["gamma"].astype("f8") / np.sqrt(x["var"].astype("f8") + 1e-5)
    w = (x["w"] * gain[:, None, None, None]).ravel()
    np.testing.assert_allclose(scene.cells("w_folded1"), w, rtol=1e-6)
    np.testing.assert_allclose(scene.cells("b_folded1"), (x["b"] - x["mean"]) * gain + x["beta"], rtol=1e-5)
    assert "√(0.25) = 3" in scene.caption(0) and "w · gain" in scene.caption(1)
    filter_0 = scene.cells("w_folded1", 1)
    assert np.isfinite(filter_0[:18]).all() and np.isnan(filter_0[18:]).all()


# -- the pool and the window --------------------------------------------------------------------------------------
@needs_nvrtc
@settings(max_examples=10, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.data())
def test_the_first_window_of_a_pool_is_loaded_and_reduced(H, W, R, stride, data):
    pad = data.draw(st.integers(0, R // 2))
    if min(H, W) + 2 * pad < R:
        return
    s = ChainShape(1, 2, H, W, f"maxpool:{R}:stride={stride}:pad={pad}")
    scene = fusion_scene(s, "fusion/unfused", {})
    x = plan.inputs(s)["x"][0, 0]
    window = x[: R - pad, : R - pad].ravel()
    np.testing.assert_array_equal(scene.cells("u1"), window)
    assert scene.cells("v1")[0] == window.max() == scene.cells("y")[0]
    assert str(len(window)) in scene.caption(0) or len(window) == 1


@needs_nvrtc
def test_prologue_applies_to_every_value_of_the_window():
    s = ChainShape(1, 2, 5, 5, "bn relu maxpool:3:stride=2:pad=1")
    scene = fusion_scene(s, "fusion/fused", {})
    u = scene.cells("u1").reshape(3, -1)
    assert u.shape[1] == 4  # the corner's window: 2 x 2 of 3 x 3 lie on the map
    np.testing.assert_array_equal(u[0], plan.inputs(s)["x"].ravel()[[0, 1, 5, 6]])
    np.testing.assert_allclose(u[1], until(s, 1)[0].ravel()[[0, 1, 5, 6]], rtol=1e-5, atol=1e-6)
    assert u[2].max() == scene.cells("v1")[0] == scene.cells("y")[0]


@needs_nvrtc
def test_lanes_add_up_a_map():
    s = ChainShape(1, 1, 7, 10, "relu gap")
    scene, x = fusion_scene(s, "fusion/fused", {}), plan.inputs(s)["x"].ravel()
    u, sums = scene.cells("u1").reshape(2, -1)[:, :70], scene.cells("s1").reshape(6, 32)
    np.testing.assert_array_equal(u, [x, np.maximum(x, 0)])
    assert sums[0, 5] == u[1][[5, 37, 69]].sum() and sums[0, 6] == u[1][[6, 38]].sum()
    assert (sums[-1] == u[1].sum()).all() and sums[1, 0] == sums[0, 0] + sums[0, 16]


# -- steps ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["fusion-toy-pool", "fusion-ragged", "fusion-eight", "resnet50-stem-n32"])
def test_every_step_has_a_caption_and_a_line_of_its_launch(key):
    s = FUSION_PRESETS[key].shape
    for rung, scene in scenes(s):
        parts = PLANS[rung](plan.stage_shape(s), TILES | find(rung).default_tiles).parts
        for t, launch in enumerate(scene.readings[0].values):
            file, line = scene.source_at(t)[:2]
            assert file.file == parts[launch - 1].launch.source.rpartition("/")[2] and line > 0
        assert all("{" not in scene.caption(t) and len(scene.caption(t)) < 360 for t in range(scene.steps))
        heads = [scene.caption(t).partition(".")[0] for t in range(scene.steps) if "Launch " in scene.caption(t)]
        assert heads == [f"Launch {n} of {len(parts)}: {p.launch.name}" for n, p in enumerate(parts, 1)]
        meta, block = payload(scene)
        assert len(block) < 100_000 and meta["steps"] == scene.steps


@settings(max_examples=20)
@given(chain_shapes(max_extent=14, max_blocks=8))
def test_stage_shape_keeps_windows_strides_and_paddings(s):
    small = plan.stage_shape(s)
    assert small.N == 1 and len(small.blocks) == len(s.blocks)
    for small_block, block in zip(small.blocks, s.blocks, strict=True):
        assert (small_block.kind, small_block.R, small_block.stride, small_block.pad) == (
            block.kind,
            block.R,
            block.stride,
            block.pad,
        )
        assert small_block.K <= block.K
    assert all(a <= b for a, b in zip(small.x_shape, s.x_shape, strict=True))


def test_scaled_down_scene_is_labelled():
    s = FUSION_PRESETS["fusion-eight"].shape
    scene = fusion_scene(s, "fusion/fused", {})
    assert "scaled down" in scene.groups[0].title and "scaled down from 64 × 256 × 56 × 56" in scene.tensor("x").note
    whole = fusion_scene(FUSION_PRESETS["fusion-toy"].shape, "fusion/fused", {})
    assert "scaled" not in whole.groups[0].title


# -- sentences and bars --------------------------------------------------------------------------------------------
ROOF = Roof("a GPU", "recorded", 4e12, 60e12, {"launch_us": 1.5})


def test_fusion_saves_the_maps_between_and_their_launches():
    s = FUSION_PRESETS["fusion-bias-bn-relu"].shape
    maps = 4 * 64 * 256 * 56 * 56
    assert notes.saved_bytes(s) == 2 * 2 * maps  # two maps between three launches, written and read
    conclusion, text = notes.pays(s, ROOF)
    assert "memory limits this chain" in conclusion
    assert "2 launches (3 µs) and 822 MB" in text and "At the speed of a copy, this traffic takes 206 µs" in text
    columns = notes.launch_table(s)
    assert columns["fusion/fused"]["bytes moved / minimum"] == "1×" and columns["fusion/unfused"]["launches"] == "3"


def test_convolution_above_the_ridge_hardly_pays():
    s = FUSION_PRESETS["resnet50-res4-3x3-bias-bn-relu-n32"].shape
    text = " ".join(notes.pays(s, ROOF))
    assert "a GPU computes 15 FLOP (the ridge of its roof)" in text and "w′ = w · gamma" in text
    assert "arithmetic limits the convolution: it takes 123 µs at the FP32 peak" in text
    saved = 2 * 3 * 4 * 32 * 256 * 14 * 14 / 4e12 * 1e3 + 3 * 1.5e-3
    arithmetic = 2 * 32 * 256 * 14 * 14 * 256 * 9 / 60e12 * 1e3
    assert f"at most {100 * saved / (arithmetic + saved):.0f} % of the time" in text
    assert "Here fusion hardly saves time." in text


@every("key", FUSION_PRESETS)
def test_only_one_sentence_says_what_limits_a_chain(key):
    s = FUSION_PRESETS[key].shape
    conclusion, *reasons = notes.pays(s, ROOF)
    assert conclusion.count("limits") == 1 and not any("limits" in text for text in reasons)
    assert f"{notes.limits(s, ROOF).limit} limit" in conclusion.replace("launch overhead", "launches").replace(
        "memory", "bytes"
    )


@pytest.mark.parametrize(
    ("words", "extent", "limit"),
    [
        (
            "conv:K=2:R=3 bias bn relu",
            4,
            "launches",
        ),  # a convolution below the ridge that is too small for it to matter
        ("conv:K=2:R=3 bias bn relu", 1024, "bytes"),
        ("conv:K=64:R=3 bias bn relu", 256, "arithmetic"),
        ("bias bn relu", 256, "bytes"),
    ],
)
def test_the_limit_of_a_chain_is_its_longest_part(words, extent, limit):
    found = notes.limits(ChainShape(1, 64, extent, extent, words), ROOF)
    assert found.limit == limit
    longest = max(found.launches, found.bytes, found.arithmetic)
    assert longest == {"launches": found.launches, "bytes": found.bytes, "arithmetic": found.arithmetic}[limit]


def test_a_chain_in_which_nothing_is_fused_has_no_limit_named():
    (text, *_) = notes.pays(ChainShape(1, 2, 6, 6, "conv:K=2:R=3 conv:K=2:R=3"), ROOF)
    assert text == "Fusion changes nothing in this chain: every block begins its own kernel."


def test_times_are_no_powers_of_ten_and_no_ratio_is_one():
    assert notes._time(2e-8) == "less than 0.01 µs" and notes._time(2e-3) == "2 µs"
    s = FUSION_PRESETS["fusion-bias-bn-relu"].shape

    def row(rung, ms):
        return {"rung": rung, "shape": s.params(), "median_ms": ms, "p20_ms": ms, "p80_ms": ms}

    rows = {rung: row(rung, ms) for rung, ms in ((notes.UNFUSED, 0.3001), (notes.FUSED, 0.3), (notes.LIBRARY, 0.3))}
    text = notes.fusion_gain(rows)
    assert "take nearly the same time" in text and "is as fast as PyTorch" in text and "1×" not in text
    rows[notes.FUSED] |= {"ceilings": {"copy_bytes_per_s": s.bytes / 0.3 * 1e3}}
    assert "Our fastest version takes the same time as this copy." in notes.fusion_gain(rows)


@every(
    ("words", "says"),
    [
        ("bn relu maxpool:3:stride=1", "read each value 4× on average, and compute these blocks as often"),
        ("bn relu maxpool:2", "do not overlap, so nothing is computed twice"),
        ("bn relu maxpool:2:pad=1", "do not overlap, so nothing is computed twice"),
        ("relu conv:K=8:R=3", "would run again for each tap (R·R = 9) and each filter (K = 8): up to 72×"),
        ("conv:K=2:R=3 relu gap", "because one warp needs a whole map"),
        ("conv:K=2:R=3 relu maxpool:2", "computed twice in the same kernel. But one thread would compute all 4 values"),
        ("conv:K=2:R=3 relu maxpool:3:stride=1", "contains a value: 4× on average"),
    ],
)
def test_reason_why_a_block_begins_a_kernel(words, says):
    assert says in " ".join(notes.pays(ChainShape(1, 2, 6, 6, words), None))


def test_bars_are_consecutive_and_a_single_launch_takes_all():
    s = FUSION_PRESETS["fusion-toy"].shape
    unfused = {
        "rung": "fusion/unfused",
        "shape": s.params(),
        "tiles": TILES,
        "median_ms": 0.5,
        "parts_ms": {"conv": 0.25, "bias": 0.125, "relu": 0.0625},
    }
    bars = [("conv", 0.0, 0.25), ("bias", 0.25, 0.125), ("relu", 0.375, 0.0625)]
    assert [(b.name, b.start, b.ms) for b in charts.bars(unfused)] == bars
    fused = unfused | {"rung": "fusion/fused", "parts_ms": {}}
    assert [(b.name, b.ms) for b in charts.bars(fused)] == [("conv_bias_bn_relu", 0.5)]
    library = unfused | {"rung": "fusion/torch", "parts_ms": {}}
    assert charts.bars(library)[0].name == "all calls"


def test_a_time_axis_has_two_labels_as_a_phone_has_no_room_for_more():
    axis = charts._unit(0.53)
    assert axis["tickvals"] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert [text for text in axis["ticktext"] if text] == ["0", "500 µs"]
