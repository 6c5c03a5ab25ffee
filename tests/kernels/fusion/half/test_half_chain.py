"""Fused FP16 convolutions with the channels last, without a GPU: results, waits that are needed, bytes, rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels import sources
from kernels.engines import cpu, emulator
from kernels.fusion import codegen as planar_codegen
from kernels.fusion.half import codegen, common, hopper
from kernels.fusion.half.ladder import LADDER
from kernels.fusion.half.presets import HALF_CHAIN_PRESETS
from kernels.fusion.half.shape import HalfChainShape, parse_half_chain
from kernels.fusion.shape import POINTWISE, ChainShape
from kernels.model.program import INPUT
from kernels.model.tensor_map import TensorMap
from kernels.model.verify import agrees
from kernels.runner import seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

RUNG, SMALL = hopper.RUNG, dict(hopper.SMALL)
TWO_CONSUMERS = {"BM": 128, "STAGES": 2}
ODD = HALF_CHAIN_PRESETS["fp16-chain-odd"].shape
# Several tiles, partly outside; more channels than a tile has; each block in several places.
CHAINS = [
    HalfChainShape(3, 72, 9, 10, "conv:K=72:R=3 bias bn relu"),
    HalfChainShape(2, 136, 7, 7, "conv:K=200:R=1:stride=2 bn add relu"),
    HalfChainShape(1, 8, 5, 6, "conv:K=8:R=5:pad=1 relu add bias add bn:eps=0.1 bias"),
    HalfChainShape(2, 64, 4, 4, "conv:K=64:R=2:pad=1"),
]


# -- the shape and its reference ---------------------------------------------------------------------
def test_the_shape_counts_bytes_of_two_and_parameters_of_four():
    s = parse_half_chain("N=2,C=8,H=5,W=6,chain=conv:K=16:R=3 bias add")
    assert s == HalfChainShape(2, 8, 5, 6, "conv:K=16:R=3 bias add") and s != ChainShape(**s.params())
    maps, weights = 2 * 5 * 6 * (8 + 16 + 16), 16 * 9 * 8
    assert s.bytes == 2 * (maps + weights) + 4 * 16 and str(s).endswith("NHWC fp16")
    shapes = {b.name: (b.shape, b.dtype) for b in common.buffers(s)}
    assert shapes["z"] == ((2, 5, 6, 16), "float16") and shapes["w"] == ((16, 3, 3, 8), "float16")
    assert shapes["b"] == ((16,), "float32")


@pytest.mark.parametrize("s", [ODD, *CHAINS], ids=str)
def test_the_numpy_steps_agree_with_the_reference(s):
    assert rung_runs.verified_output(cpu, RUNG, s).dtype == np.float16


@pytest.mark.parametrize("kind", POINTWISE)
def test_a_block_that_is_left_out_is_an_error(kind):
    s = ODD.with_(chain=f"conv:K=40:R=3 {kind}")
    inputs = seeded_inputs([b for b in common.buffers(s) if b.role == INPUT])
    ref, scale = LADDER.reference(s, **inputs)
    without, _ = LADDER.reference(s.with_(chain="conv:K=40:R=3"), x=inputs["x"], w=inputs["w"])
    assert agrees(ref.astype(np.float16), ref, scale, RUNG.tolerance)
    assert not agrees(without.astype(np.float16), ref, scale, RUNG.tolerance)


def test_maps_rounded_after_each_block_agree_by_the_libraries_scale():
    s = CHAINS[1]
    inputs = seeded_inputs([b for b in common.buffers(s) if b.role == INPUT])
    (torch, _) = (rung for rung in LADDER.rungs if rung.library)
    y, at = None, ""
    for block in s.chain.split():  # each block alone, on the rounded maps of the one before
        at = f"{at} {block}".strip()
        shape = s.with_(chain=at)
        names = [b.name for b in common.buffers(shape) if b.role == INPUT]
        if y is None:
            y = LADDER.reference(shape, **{n: inputs[n] for n in names})[0].astype(np.float16)
        elif block == "bn":
            gain = inputs["gamma"] / np.sqrt(inputs["var"] + np.float32(1e-5))
            y = ((y - inputs["mean"]) * gain + inputs["beta"]).astype(np.float16)
        else:
            y = y + inputs["z"] if block == "add" else np.maximum(y, 0)
    ref, _ = LADDER.reference(s, **inputs)
    assert agrees(y, ref, torch.scale(s, {}, inputs), torch.tolerance)


# -- kernels -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("s", [ODD, *CHAINS], ids=str)
def test_emulator_agrees_in_any_order_of_warps_without_races(s):
    rung_runs.same_in_any_order(lambda options: rung_runs.verified_output(emulator, RUNG, s, SMALL, options=options))


@needs_nvrtc
@pytest.mark.parametrize("tiles", [{}, {"BM": 192, "BN": 128, "STAGES": 2}], ids=str)
def test_other_tiles_agree(tiles):
    rung_runs.verified_output(emulator, RUNG, CHAINS[1], tiles)


@needs_nvrtc
def test_bytes_of_the_copy_engine():
    """What is added comes once, with the copy engine; nothing is stored between the blocks."""
    s = HalfChainShape(1, 64, 8, 8, "conv:K=64:R=1 bn add relu")
    program = RUNG.build(s, RUNG.check(s, SMALL))
    session = emulator.Session(program, seeded_inputs(program.of_role(INPUT)), emulator.Options())
    session.verify_run()
    total = session.counters.total
    n = s.elements
    assert total["bulk_bytes_ld"] == 2 * (n["x"] + n["w"] + n["z"])
    assert total["bulk_bytes_st"] == 2 * n["y"] and total["bytes_st"] == 0
    assert total["bytes_ld"] == 4 * 4 * 64  # the four parameters of each filter


FAULTS = [
    ("bn add", "init_barrier(addends_full, 1)", "init_barrier(addends_full, 2)", "deadlock"),
    ("bn add", "ADDS * BM * BN * 2", "ADDS * BM * BN", "deadlock"),
    ("bn", "boxes) {\n  publish_writes();\n", "boxes) {\n", "no fence.proxy.async"),
    ("bn", "map_gain = ring.params + 1 * BN", "map_gain = ring.params + 0 * BN", ""),
    ("bias add", "blockIdx.x * BN + c, shape.K", "c, shape.K", ""),
    ("add relu add", "ring.addends + 1 * BM * BN", "ring.addends + 0 * BM * BN", ""),
    ("relu", "eight % 8 ^ row % 8", "eight % 8", ""),
]


@needs_nvrtc
@pytest.mark.parametrize(("blocks", "right", "wrong", "message"), FAULTS, ids=lambda text: text[:24])
def test_every_wait_and_place_is_needed(blocks, right, wrong, message):
    s = HalfChainShape(2, 72, 8, 8, f"conv:K=136:R=1 {blocks}")
    program = RUNG.build(s, RUNG.check(s, TWO_CONSUMERS))
    inputs = seeded_inputs(program.of_role(INPUT))
    memory = rung_runs.memory_of(program, inputs)
    found = rung_runs.relaunched(
        program.steps[0], rung_runs.replace_once(wrong, right), memory, stops=message or "out-of-bounds"
    )
    if found and not found.races:
        ref, scale = LADDER.reference(s, **inputs)
        assert not agrees(memory.array("y"), ref, scale, RUNG.tolerance)


# -- the texts ---------------------------------------------------------------------------------------
def test_a_name_is_enough_for_a_text():
    name = codegen.source(("conv", "bias", "relu", "bias"))
    assert codegen.parse_source(name).kinds == ("conv", "bias", "relu", "bias")
    text = sources.text(name)
    assert max(map(len, text.splitlines())) <= 72 and "map_bias_2" in text
    assert sources.needs_hopper(name)
    for wrong in ("fusion/fp16_relu.cu", "fusion/fp16_conv_maxpool.cu", "fusion/fp16_conv_no.cu"):
        with pytest.raises(FileNotFoundError, match="names no fused kernel"):
            sources.text(wrong)
    assert not name.startswith(planar_codegen.PREFIXES)


# -- rules -------------------------------------------------------------------------------------------
@every(
    ("change", "tiles", "rule"),
    [
        ({"chain": "relu conv:K=8:R=3"}, {}, "the chain must be a convolution and pointwise blocks after it"),
        ({"chain": "conv:K=8:R=3 maxpool:2"}, {}, "the chain must be a convolution and pointwise blocks"),
        ({"C": 12}, {}, "C % 8 == 0, got 12 % 8"),
        ({"chain": "conv:K=12:R=3"}, {}, "K % 8 == 0, got 12 % 8"),
        ({"chain": "conv:K=8:R=3:stride=9"}, {}, "u <= 8, got 9"),
        ({"chain": "conv:K=8:R=3 add relu add"}, {"BM": 256, "BN": 256, "STAGES": 2}, "got 393256"),
        ({}, {}, ""),
    ],
)
def test_rules(change, tiles, rule):
    broken = list(RUNG.rules(ODD.with_(**change), RUNG.default_tiles | tiles))
    assert any(rule in text for text in broken) if rule else not broken, broken


def test_every_legal_set_fits_the_machine():
    for s in (p.shape for p in HALF_CHAIN_PRESETS.values()):
        for tiles in rung_runs.legal(RUNG, s):
            (step,) = RUNG.build(s, tiles).steps
            emulator.check(step)
            assert step.shared <= 227 * 1024 and step.block[0] <= 1024
            assert step.shared >= 2 * tiles["BM"] * tiles["BN"]  # the results replace the tiles
            for argument in step.args:
                if isinstance(argument, TensorMap):
                    replace(argument).check()
