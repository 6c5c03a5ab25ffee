"""FP16 convolution with the channels last, without a GPU: results at any shape, waits that are needed, bytes, rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv.half import hopper, library, mma
from kernels.conv.half.ladder import LADDER
from kernels.conv.half.presets import HALF_PRESETS
from kernels.conv.half.reference import TOLERANCE, conv
from kernels.conv.half.shape import HalfShape, parse_half
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, emulator
from kernels.model.program import INPUT, RuleError
from kernels.model.tensor_map import TensorMap
from kernels.runner import compare, run, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.shapes import half_shapes

RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs if not rung.library}
HOPPER = {rung.name.partition("/")[2]: rung for rung in hopper.RUNGS}
HALO = "halo", "halo-split"
ODD = HALF_PRESETS["fp16-odd"].shape
# Several tiles, partly outside, several images in a tile, more channels than a tile has.
RAGGED = HalfShape(3, 72, 9, 10, 72, 3, 2, pad=(1, 2), extra=(-1, 0), dilation=(1, 2), mode="convolution")


def small(name: str) -> dict[str, int]:
    """Returns tile sizes with few threads and stages, so that a small shape has several tiles."""
    if name == "mma":
        return {"BM": 32, "BN": 32, "BK": 32, "WM": 16, "WN": 16, "STAGES": 2}
    corners = {"TH": 4, "TW": 4} if name == "boxes" else {}
    return {"BM": 64, "BN": 64, "STAGES": 2} | corners


# -- the shape and its reference ---------------------------------------------------------------------
def test_the_shape_counts_bytes_of_two():
    s = parse_half("N=2,C=8,H=5,W=6,K=16,R=3,S=3,pad=1,stride=2")
    assert s == HalfShape(2, 8, 5, 6, 16, 3, 3, pad=1, stride=2) and s != ConvShape(**s.params())
    assert (s.x_shape, s.w_shape, s.y_shape) == ((2, 5, 6, 8), (16, 3, 3, 8), (2, 3, 3, 16))
    assert s.bytes == 2 * (2 * 5 * 6 * 8 + 16 * 9 * 8 + 2 * 9 * 16)
    assert str(s).endswith("NHWC fp16") and s.with_(N=3).x_shape == (3, 5, 6, 8) and s.dtype == "fp16"


def test_one_lost_tap_is_an_error():
    """A sum of 4,608 terms without one of its taps is farther away than the tolerance allows."""
    s = HALF_PRESETS["fp16-resnet50-res5-3x3-n1"].shape
    inputs = seeded_inputs(mma.RUNG.build(s, mma.RUNG.default_tiles).of_role(INPUT))
    ref, scale = conv(s, **inputs)
    lost, _ = conv(s, inputs["x"], np.where(np.arange(3)[None, :, None, None] == 1, 0, inputs["w"]))
    assert (np.abs(ref.astype(np.float16) - ref) <= TOLERANCE * scale).all()
    assert not (np.abs(lost - ref) <= TOLERANCE * scale).all()


@settings(max_examples=15)
@given(shape=half_shapes())
def test_cpu_agrees_with_the_reference_at_any_shape(shape):
    assert rung_runs.verified_output(cpu, mma.RUNG, shape).dtype == np.float16


# -- kernels -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(shape=half_shapes())
def test_emulator_agrees_with_the_reference_at_any_shape(name, shape):
    if name in HALO:
        shape = shape.with_(u=1, v=1, C=shape.C + 64 * (name == "halo-split"))
    rung_runs.verified_output(emulator, RUNGS[name], shape, small(name))


@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
def test_default_tiles_agree(name):
    rung_runs.verified_output(emulator, RUNGS[name], RAGGED if name in HALO else ODD)


@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
def test_order_of_warps_changes_nothing_and_no_races(name):
    rung_runs.same_in_any_order(
        lambda options: rung_runs.computed(emulator, RUNGS[name], RAGGED.with_(N=2), small(name), options=options)[0],
        ("forward", 5),
    )


@needs_nvrtc
def test_bytes_of_the_copy_engine():
    """Windows load each pixel of the tile once for each tap, and a box with its border once for all taps."""
    s = HalfShape(1, 64, 16, 16, 64, 3, 3, pad=1)
    filters, stored = 2 * s.elements["w"], 2 * s.elements["y"]
    windows = boxes = 2 * 64 * sum((16 - abs(r)) * (16 - abs(t)) for r in (-1, 0, 1) for t in (-1, 0, 1))
    halo = 2 * 64 * 4 * 9**2  # four tiles of 8 x 8, of whose border one row and one column are in the input
    expected = {"boxes": (boxes, 4), "im2col": (windows, 4), "halo": (halo, 4)}
    for name, (pixels, times) in expected.items():
        tiles = small(name) | ({"TH": 8, "TW": 8} if name == "boxes" else {})
        program = RUNGS[name].build(s, RUNGS[name].check(s, tiles))
        session = emulator.Session(program, seeded_inputs(program.of_role(INPUT)), emulator.Options())
        session.verify_run()
        total = session.counters.total
        assert (total["bulk_bytes_ld"], total["bulk_bytes_st"]) == (pixels + times * filters, stored), name
        assert total["flops_mma"] == s.flops and total["bytes_st"] == 0


FAULTS = [
    ("im2col", "    wait(full + stage, parity);", "", "before the copy that writes it was waited for"),
    ("im2col", "wait(empty + stage, parity ^ 1);", "", "1 arrivals at an mbarrier that waits for 0 of 1"),
    ("im2col", "STAGE * 2);\n", "STAGE);\n", "wrong number of bytes"),
    ("im2col", "  wait_products<0>();\n", "\n", "may still run"),
    ("im2col", "  publish_writes();\n", "\n", "no fence.proxy.async"),
    ("im2col", "  wait_stores_read<0>();\n", "\n", "the block ends while this copy still reads"),
    ("halo", "wait(box_empty + at, box_parity ^ 1);", "", "arrivals at an mbarrier that waits for 0"),
    ("halo", "arrive(box_empty + last_at);", "{}", "deadlock"),
    ("halo-split", "  cluster_barrier();  // the sums of", "  // the sums of", "never written|block of the cluster"),
]


@needs_nvrtc
@pytest.mark.parametrize(("name", "right", "wrong", "message"), FAULTS)
def test_every_wait_is_needed(name, right, wrong, message):
    rung, s = RUNGS[name], HalfShape(2, 264, 8, 8, 72, 1, 1)
    program = rung.build(s, rung.check(s, small(name)))
    (step,) = program.steps
    memory = rung_runs.memory_of(program, seeded_inputs(program.of_role(INPUT)))
    change = rung_runs.replace_once(wrong, right)
    found = rung_runs.relaunched(step, change, memory, stops=message)
    assert found is None or found.races


# -- rules -------------------------------------------------------------------------------------------
@every(
    ("name", "change", "tiles", "rule"),
    [
        ("mma", {"C": 12}, {}, "C % 8 == 0, got 12 % 8"),
        ("im2col", {"K": 12}, {}, "K % 8 == 0, got 12 % 8"),
        ("mma", {"groups": 2}, {}, "groups must be 1, got 2"),
        ("halo", {"bias": 1}, {}, "bias must be 0 in FP16, got 1"),
        ("mma", {}, {"BM": 64, "WM": 32}, ""),
        ("mma", {}, {"BM": 32, "WM": 64}, "BM % WM == 0, got 32 % 64"),
        ("mma", {}, {"BM": 128, "BN": 128, "WM": 16}, "registers <= 64 (1024 threads), got 80"),
        ("boxes", {"u": 9}, {}, "u <= 8, got 9"),
        ("boxes", {}, {"TH": 16, "TW": 16}, "BM % (TH*TW) == 0, got 128 % 256"),
        ("im2col", {"pad_w": 128, "dilation_w": 130}, {}, "dilation_w*(S-1) <= 255, got 260"),
        ("im2col", {"dilation_w": 70}, {}, "pad_w+extra_w-dilation_w*(S-1) in -128 .. 127, got -139"),
        ("im2col", {"pad_h": 130}, {}, "the copy engine needs -pad_h in -128 .. 127, got -130"),
        ("im2col", {}, {"STAGES": 6, "BM": 256, "BN": 256}, "bytes of shared memory <= 232448"),
        ("halo", {"v": 2}, {}, "v <= 1, got 2"),
        ("halo", {}, {"BOXES": 1}, "BOXES >= 2 if C > 64, got 1"),
        ("halo", {"C": 64}, {"BOXES": 1}, ""),
        ("halo-split", {}, {"SPLIT": 4}, "SPLIT <= 2, got 4"),
        ("halo-split", {"C": 264}, {"BM": 256, "BN": 256, "TH": 16}, "bytes of sums, 4*BM*BN <= 232448, got 262144"),
    ],
)
def test_rules(name, change, tiles, rule):
    s = HalfShape(2, 72, 64, 320, 72, 3, 3, pad=1).with_(**change)
    broken = list(RUNGS[name].rules(s, RUNGS[name].default_tiles | tiles))
    assert any(rule in text for text in broken) if rule else not broken, broken


def test_cudnn_flips_no_filter():
    assert "mode must be cross-correlation, got convolution" in list(library.rules(RAGGED, {}))


@pytest.mark.parametrize("name", HOPPER)
def test_every_legal_set_fits_the_machine(name):
    s = HALF_PRESETS["fp16-resnet50-res2-3x3-n32"].shape
    for tiles in rung_runs.legal(RUNGS[name], s):
        (step,) = RUNGS[name].build(s, tiles).steps
        emulator.check(step)
        assert step.shared <= 227 * 1024 and step.block[0] <= 1024
        assert step.shared >= 2 * tiles["BM"] * tiles["BN"]  # the results replace the tiles
        for argument in step.args:
            if isinstance(argument, TensorMap):
                replace(argument).check()


def test_a_shape_with_unaligned_channels_is_refused():
    with pytest.raises(RuleError, match="C % 8 == 0, got 3 % 8"):
        run("conv-fp16/im2col", HalfShape(1, 3, 9, 9, 8, 3, 3), engine="emulator")


def test_a_shape_runs_with_the_tile_sizes_that_are_fastest_there():
    """Unless a tile size is given: then the others are the defaults."""
    shape = HALF_PRESETS["fp16-resnet50-res3-3x3-n32"].shape
    rung = mma.RUNG
    assert rung.tiles_at(shape)["BM"] == 128 != rung.default_tiles["BM"]
    few = HalfShape(1, 8, 92, 92, 8, 1, 1)  # 8,464 pixels
    for tiles, expected in ((None, rung.tiles_at(few)), ({"STAGES": 2}, rung.default_tiles | {"STAGES": 2})):
        (result,) = compare([rung.name], few, engine="cpu", tiles=tiles, measure=False)
        assert result.tiles == expected


def test_tile_sizes_that_break_a_rule_are_not_chosen_for_a_shape():
    """The box under 13 x 12 taps leaves no memory for a filter's tile of 128 channels."""
    shape = HalfShape(32, 64, 64, 64, 128, 13, 12, pad=5)
    rung = LADDER.rung("conv-fp16/halo")
    assert any(rung.rules(shape, rung.default_tiles | dict(rung.faster(shape))))
    assert not any(rung.rules(shape, rung.tiles_at(shape)))
