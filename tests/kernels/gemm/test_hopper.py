"""The rungs for Hopper, executed without a GPU: results at any shape they allow, needed waits, bytes of the copy engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.engines import cuda, emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from kernels.gemm import hopper
from kernels.gemm.reference import gemm
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.machine import driver
from kernels.model.program import INPUT, OUTPUT, Launch, RuleError
from kernels.runner import run, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

RUNGS = {rung.name.removeprefix("gemm/"): rung for rung in hopper.RUNGS}
SMALL = {  # few threads and stages, several tiles for each block
    "wgmma": {"BM": 64, "BN": 64},
    "wgmma-ring": {"BM": 64, "BN": 64, "STAGES": 2},
    **{f"wgmma-{name}": {"STAGES": 3} for name in ("consumers", "persistent", "cluster", "store")},
    "wgmma-turns": {"BM": 64, "BN": 64, "STAGES": 4},
}


def step_of(name: str, s: GemmShape, tiles=None) -> Launch:
    (step,) = RUNGS[name].build(s, RUNGS[name].default_tiles | (tiles or SMALL[name])).steps
    return step


def emulated(name: str, s: GemmShape, tiles=None, change=lambda text: text, blocks: int = 0, **options):
    """Runs a rung with its source changed by `change`, on at most `blocks` blocks. Returns (C, inputs, run)."""
    program = RUNGS[name].build(s, RUNGS[name].default_tiles | (tiles or SMALL[name]))
    (step,) = program.steps
    (c,) = program.of_role(OUTPUT)
    text = change(sources.translation_unit(step.source))
    ptx = compile.compile_ptx(text, step.source.rpartition("/")[2], precompiled.options(step.defines, step.source))
    inputs = seeded_inputs(program.of_role(INPUT))
    memory = device_memory(inputs | {"C": np.zeros(c.shape, c.dtype)}, list(inputs))
    grid = (min(step.grid[0], blocks), 1, 1) if blocks else step.grid
    result: Run = launch(
        ptx, step.entry, grid, step.block, step.args, memory, step.shared, Options(count=True, **options)
    )
    return memory.array("C"), inputs, result


def excess_error(s: GemmShape, out: np.ndarray, inputs) -> float:
    """Returns by how much the worst element exceeds the emulator's rounding error: one rounding to FP32 in 16 products,
    then for alpha and for beta."""
    ref, scale = gemm(s, **inputs)
    return float((np.abs(out - ref) - (-(-s.K // 16) + 2) * 2.0**-24 * scale).max())


@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=2)
@given(
    M=st.integers(1, 150),
    N=st.integers(1, 17).map(lambda n: 8 * n),
    K=st.integers(1, 24).map(lambda n: 8 * n),
    dtype=st.sampled_from(["fp16", "bf16"]),
    alpha=st.sampled_from([1, -2]),
    beta=st.sampled_from([0, 3]),
)
def test_agrees_at_any_shape(name, M, N, K, dtype, alpha, beta):
    s = GemmShape(M, N, K, alpha, beta, dtype)
    out, inputs, _ = emulated(name, s)
    assert excess_error(s, out, inputs) <= 0


@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
def test_default_tiles_agree(name):
    run(f"gemm/{name}", GemmShape(136, 136, 200, alpha=-1, beta=2, dtype="bf16"), engine="emulator")


@needs_nvrtc
@pytest.mark.parametrize(
    "name, blocks", [("wgmma-persistent", 1), ("wgmma-store", 1), ("wgmma-cluster", 2), ("wgmma-turns", 1)]
)
def test_a_block_computes_several_tiles(name, blocks):
    """The ring goes on from one tile to the next; 3 stages and 4 steps of K are out of step."""
    s = GemmShape(300, 136, 256, dtype="fp16")
    tiles = SMALL[name] | {"GROUP": 4}
    out, inputs, _ = emulated(name, s, tiles, blocks=blocks)
    assert excess_error(s, out, inputs) <= 0


@needs_nvrtc
@pytest.mark.parametrize("name", ["wgmma-ring", "wgmma-consumers"])
def test_a_stage_is_filled_again_only_after_its_products(name):
    """The emulator raises if a copy overwrites what a product still reads. K has more tiles than the ring has stages."""
    s = GemmShape(64, 64, 9 * hopper.BK, dtype="fp16")
    out, inputs, _ = emulated(name, s)
    assert excess_error(s, out, inputs) <= 0


@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
def test_order_of_warps_changes_nothing_and_no_races(name):
    s = GemmShape(70, 72, 136, beta=1, dtype="fp16")
    first, other = [emulated(name, s, order=order, races=True) for order in ("forward", 5)]
    assert first[2].races == other[2].races == ()
    np.testing.assert_array_equal(first[0], other[0])


FAULTS = [
    ("  wait(full + stage, parity);", "", "before the copy that writes it was waited for"),
    ("  wait(empty + stage, parity ^ 1);", "", "1 arrivals at an mbarrier that waits for 0 of 1"),
    ("STAGE * 2);\n", "STAGE);\n", "wrong number of bytes"),
    ("STAGE * 2);\n", "STAGE * 4);\n", "deadlock: the mbarrier .* waits for [0-9,]+ bytes of copies"),
    ("wait_products<0>();\n", "\n", "may still run"),
    ("begin_products();\n", "\n", "no wgmma.fence"),
    ("arrive(empty + last)", "arrive(full + last)", "arrivals at an mbarrier that waits for|deadlock|wrong number"),
]


@needs_nvrtc
@pytest.mark.parametrize("old, new, message", FAULTS)
def test_every_wait_of_the_ring_is_needed(old, new, message):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    with pytest.raises(EmulatorError, match=message):
        emulated("wgmma-ring", GemmShape(64, 64, 320, dtype="fp16"), change=change)


@needs_nvrtc
def test_a_consumer_needs_its_turn():
    """Without it, a consumer takes the phase before the one that it waits for to be this one: both have its parity."""

    def change(text: str) -> str:
        assert "wait(turn + warpgroup, turn_parity);" in text
        return text.replace("wait(turn + warpgroup, turn_parity);", "")

    with pytest.raises(EmulatorError, match="before the copy that writes it was waited for"):
        emulated("wgmma-turns", GemmShape(192, 64, 320, dtype="fp16"), change=change, blocks=1)


@needs_nvrtc
@pytest.mark.parametrize("beta", [0, 1])
def test_values_of_c0_that_are_loaded_ahead_are_read_once(beta):
    s = GemmShape(100, 136, 64, beta=beta, dtype="fp16")
    total = emulated("wgmma-turns", s)[2].counters.total
    assert total["bytes_ld"] == 4 * s.M * s.N * beta


@needs_nvrtc
def test_stores_by_the_copy_engine_need_their_fence():
    def change(text: str) -> str:
        head, _, rest = text.partition("void store_boxes")
        return head + "void store_boxes" + rest.replace("publish_writes();", "", 1)

    with pytest.raises(EmulatorError, match=r"no fence.proxy.async .*\(warp \d+\), by thread"):
        emulated("wgmma-store", GemmShape(64, 64, 64, dtype="fp16"), change=change)


@needs_nvrtc
def test_multicast_halves_the_bytes_of_b():
    """A block's own tile of A is 128 x 64. Two blocks read one tile of B [64, 256] together."""
    s = GemmShape(256, 256, 128, dtype="fp16")
    a, b = 2 * 256 * 128, 2 * 256 * 128
    stored = 4 * 256 * 256
    for name, loads, stores in (
        ("wgmma-persistent", a + 2 * b, 0),
        ("wgmma-store", a + 2 * b, stored),
        ("wgmma-cluster", a + b, stored),
    ):
        total = emulated(name, s)[2].counters.total
        assert (total["bulk_bytes_ld"], total["bulk_bytes_st"]) == (loads, stores), name
        assert (total["bytes_st"] == 0) == bool(stores)
        assert total["flops_mma"] == s.flops


@every(
    "name, change, tiles, rule",
    [
        ("wgmma", {"dtype": "fp32"}, {}, "dtype must be fp16 or bf16"),
        ("wgmma", {"N": 36}, {}, "N % 8 == 0, got 36 % 8"),
        ("wgmma-ring", {"K": 17}, {}, "K % 8 == 0, got 17 % 8"),
        ("wgmma-ring", {}, {"BN": 256}, "a thread keeps at most 128 sums, got 256"),
        ("wgmma-consumers", {}, {"BN": 256}, "a thread keeps at most 128 sums, got 256"),
        ("wgmma-store", {}, {"BM": 256, "BN": 128}, ""),
        ("wgmma-turns", {}, {"BN": 256}, "a thread keeps at most 128 sums, got 256"),
        ("wgmma-turns", {}, {"STAGES": 8}, "shared"),
        ("wgmma-turns", {}, {"BM": 64, "STAGES": 8}, ""),
        ("wgmma", {"M": 65_535 * 128 + 1}, {}, "M <= 65535*BM (grid.y)"),
    ],
)
def test_rules(name, change, tiles, rule):
    s = GemmShape(**{"M": 64, "N": 64, "K": 64, "dtype": "fp16"} | change)
    broken = list(RUNGS[name].rules(s, RUNGS[name].default_tiles | tiles))
    assert any(rule in text for text in broken) if rule else not broken


@every("name", RUNGS)
def test_every_legal_set_fits_into_shared_memory(name):
    s = GemmShape(4096, 4096, 4096, dtype="fp16")
    for tiles in rung_runs.legal(RUNGS[name], s):
        step = step_of(name, s, tiles)
        emulator.check(step)
        assert step.shared <= 227 * 1024 and step.block[0] <= 1024


def test_gpus_of_other_capabilities_are_refused_in_words(monkeypatch):
    rung, s = RUNGS["wgmma"], GemmShape(64, 64, 64, dtype="fp16")
    for capability, message in (
        ((8, 9), "compute capability 9.0 or newer is needed, a GPU has 8.9"),
        ((9, 0), ""),
        ((10, 0), "compute capability 9.0 is needed, a GPU has 10.0"),
    ):
        gpu = driver.GpuInfo("a GPU", 1, "0000:00:00.0", capability, 232_448)
        monkeypatch.setattr(driver, "find", lambda gpu=gpu: gpu)
        assert cuda.refusal(rung, s, rung.default_tiles) == message


@every("name", RUNGS)
def test_a_rung_says_which_gpus_run_it(name):
    assert RUNGS[name].needs == "Of all GPUs, only those of compute capability 9.0 run it."
    assert not LADDERS["gemm"].rung("gemm/mma-sync").needs


def test_a_shape_with_unaligned_rows_is_refused():
    with pytest.raises(RuleError, match="K % 8 == 0, got 37 % 8"):
        run("gemm/wgmma-cluster", GemmShape(61, 48, 37, dtype="fp16"), engine="emulator")
