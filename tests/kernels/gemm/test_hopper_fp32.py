"""The last rungs of the FP32 ladder, executed without a GPU: any shape, needed waits, bank conflicts, the error of 3xTF32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.engines import emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from kernels.gemm import hopper_fp32
from kernels.gemm.reference import gemm
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.runner import run, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc

pytestmark = needs_nvrtc
RINGS = ("transposed-ring", "tf32x3")
SMALL = {"BM": 128, "BN": 128, "STAGES": 2, "GROUP": 4}


def emulated(name: str, s: GemmShape, change=lambda text: text, tiles=SMALL, **options):
    """Runs a rung with its source changed by `change`. Returns (C, inputs, run)."""
    program = find(f"gemm/{name}").build(s, tiles)
    (step,) = program.steps
    text = change(sources.translation_unit(step.source))
    ptx = compile.compile_ptx(text, step.source.rpartition("/")[2], precompiled.options(step.defines, step.source))
    inputs = seeded_inputs(program.of_role(INPUT))
    memory = device_memory(inputs | {"C": np.zeros((s.M, s.N), np.float32)}, list(inputs))
    result: Run = launch(
        ptx, step.entry, step.grid, step.block, step.args, memory, step.shared, Options(count=True, **options)
    )
    return memory.array("C"), inputs, result


def excess_error(s: GemmShape, out: np.ndarray, inputs, name: str) -> float:
    """Returns by how much the worst element exceeds the emulator's rounding error: one rounding to FP32 in each addition,
    then for alpha and for beta. 3xTF32 also leaves out a product."""
    ref, scale = gemm(s, **inputs)
    left_out = 2.0**-20 if name == "tf32x3" else 0.0
    return float((np.abs(out - ref) - ((s.K + 4) * 2.0**-24 + left_out) * scale).max())


@pytest.mark.parametrize("name", RINGS)
@settings(max_examples=2)
@given(
    M=st.integers(1, 150),
    N=st.integers(1, 34).map(lambda n: 4 * n),
    K=st.integers(1, 24).map(lambda n: 4 * n),
    alpha=st.sampled_from([1, -2]),
    beta=st.sampled_from([0, 3]),
)
def test_agrees_at_any_shape(name, M, N, K, alpha, beta):
    s = GemmShape(M, N, K, alpha, beta)
    out, inputs, _ = emulated(name, s)
    assert excess_error(s, out, inputs, name) <= 0


@pytest.mark.parametrize("name", RINGS)
def test_default_tiles_agree(name):
    run(f"gemm/{name}", GemmShape(132, 132, 72, alpha=-1, beta=2), engine="emulator")


@pytest.mark.parametrize("name", RINGS)
def test_order_of_warps_changes_nothing_and_no_races(name):
    s = GemmShape(70, 72, 136, beta=1)
    first, other = [emulated(name, s, order=order, races=True) for order in ("forward", 5)]
    assert first[2].races == other[2].races == ()
    np.testing.assert_array_equal(first[0], other[0])


FAULTS = [
    ("tf32x3", "wait(full + stage, parity);", "", "before the copy that writes it was waited for"),
    ("tf32x3", "publish_writes();\n      arrive", "arrive", "no fence.proxy.async"),
    ("tf32x3", "BM * BK * 4);\n", "BM * BK * 2);\n", "deadlock: .* bytes that copies have already written"),
    ("transposed-ring", "wait(full + next, next_parity);", "", "never written|before the copy"),
]


@pytest.mark.parametrize("name, old, new, message", FAULTS)
def test_every_wait_is_needed(name, old, new, message):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    with pytest.raises(EmulatorError, match=message):
        emulated(name, GemmShape(64, 64, 320), change=change)


@pytest.mark.parametrize("name", RINGS)
def test_shared_memory_is_accessed_without_bank_conflicts(name):
    total = emulated(name, GemmShape(128, 128, 64))[2].counters.total
    assert total["bank_conflicts_ld"] == total["bank_conflicts_st"] == 0


# -- 3xTF32 ------------------------------------------------------------------------------------------------
def test_two_parts_keep_21_bits():
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    big, small = hopper_fp32.split(x)
    assert not (big.view(np.uint32) & 0x1FFF).any() and not (small.view(np.uint32) & 0x1FFF).any()
    assert np.abs(small).max() <= np.abs(x).max() * 2.0**-11
    assert (np.abs(x.astype(np.float64) - big - small) <= 2.0**-22 * np.abs(x)).all()


def test_three_products_are_nearly_as_exact_as_fp32_and_one_is_not():
    s = GemmShape(64, 64, 256)
    out, inputs, _ = emulated("tf32x3", s)
    ref, scale = gemm(s, **inputs)
    assert (np.abs(out - ref) / scale).max() < 1e-6

    def only_big(text: str) -> str:
        small = "small = __float_as_uint(x - __uint_as_float(big));"
        assert small in text
        return text.replace(small, "small = 0;")

    one, _, _ = emulated("tf32x3", s, change=only_big)
    assert (np.abs(one - ref) / scale).max() > 1e-5


@pytest.mark.parametrize(
    "name, change, tiles, rule",
    [
        ("transposed-ring", {"dtype": "fp16"}, {}, "dtype must be fp32"),
        ("transposed-ring", {"N": 38}, {}, "N % 4 == 0, got 38 % 4"),
        ("tf32x3", {"K": 17}, {}, "K % 4 == 0, got 17 % 4"),
        ("transposed-ring", {}, {"BM": 256}, "BM*BN <= 32768, got 65536"),
        ("tf32x3", {"K": 16}, {}, ""),
    ],
)
def test_rules(name, change, tiles, rule):
    s = GemmShape(**{"M": 64, "N": 64, "K": 64} | change)
    rung = find(f"gemm/{name}")
    broken = list(rung.rules(s, rung.default_tiles | tiles))
    assert any(rule in text for text in broken) if rule else not broken


@pytest.mark.parametrize("name", RINGS)
def test_every_legal_set_fits_into_shared_memory(name):
    s, rung = GemmShape(4096, 4096, 4096), find(f"gemm/{name}")
    for tiles in rung_runs.legal(rung, s):
        (step,) = rung.build(s, rung.default_tiles | tiles).steps
        emulator.check(step)
        assert step.shared <= 227 * 1024 and step.block[0] <= 1024
