"""The ladder of 8-bit products without a GPU: results at any shape it allows, needed waits, refusals in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.engines import emulator
from kernels.engines.cuda.session import bits, stored
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from kernels.gemm.eight_bit import ladder as eight_bit
from kernels.gemm.eight_bit.cpu import tiled
from kernels.gemm.eight_bit.shape import FP8, INPUT, INT8, MAX_INT8_K, EightBitShape, parse_eight_bit
from kernels.model import values
from kernels.model.program import INPUT as INPUT_ROLE
from kernels.model.program import OUTPUT, RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees
from kernels.runner import run, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

LADDER = eight_bit.LADDER
OURS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs if not rung.library}
SMALL = {
    "mma-int8": {"BM": 64, "BN": 64, "WM": 32, "WN": 32},
    "wgmma-int8": {"BN": 64, "STAGES": 3},
    "wgmma-fp8": {"BN": 64, "STAGES": 3},
    "wgmma-fp8-turns": {"BM": 64, "BN": 64, "STAGES": 3},
    "wgmma-fp8-promoted": {"BN": 64, "WN": 64, "STAGES": 3},
}
WGMMA = [name for name in OURS if name.startswith("wgmma")]


def type_of(name: str) -> str:
    return FP8 if "fp8" in name else INT8


def emulated(name: str, s: EightBitShape, tiles=None, change=lambda text: text, blocks: int = 0, **options):
    """Runs a rung with its source changed by `change`, on at most `blocks` blocks. Returns (C, inputs, run)."""
    program = OURS[name].build(s, OURS[name].default_tiles | SMALL[name] | (tiles or {}))
    (step,) = program.steps
    (c,) = program.of_role(OUTPUT)
    text = change(sources.translation_unit(step.source))
    ptx = compile.compile_ptx(text, step.source.rpartition("/")[2], precompiled.options(step.defines, step.source))
    inputs = seeded_inputs(program.of_role(INPUT_ROLE))
    memory = device_memory(inputs | {"C": np.zeros(c.shape, c.dtype)}, list(inputs))
    grid = (min(step.grid[0], blocks), 1, 1) if blocks else step.grid
    result: Run = launch(
        ptx, step.entry, grid, step.block, step.args, memory, step.shared, Options(count=True, **options)
    )
    return memory.array("C"), inputs, result


def correct(name: str, s: EightBitShape, out: np.ndarray, inputs) -> bool:
    return agrees(out, *LADDER.reference(s, **inputs), OURS[name].tolerance)


# -- results ----------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", OURS)
@settings(max_examples=2)
@given(M=st.integers(1, 150), N=st.integers(1, 40), K=st.integers(1, 20))
def test_agrees_at_any_shape(name, M, N, K):
    s = EightBitShape(M, 4 * N, 16 * K, type_of(name))
    out, inputs, _ = emulated(name, s)
    assert correct(name, s, out, inputs)


@needs_nvrtc
def test_mma_sync_takes_rows_that_begin_anywhere():
    for M, N, K in ((61, 45, 37), (1, 3, 130), (65, 66, 16)):
        s = EightBitShape(M, N, K)
        out, inputs, _ = emulated("mma-int8", s)
        assert correct("mma-int8", s, out, inputs)


@pytest.mark.parametrize("name", OURS)
def test_default_tiles_agree(name):
    run(f"gemm-8bit/{name}", EightBitShape(136, 136, 208, type_of(name)), engine="emulator")


@needs_nvrtc
@pytest.mark.parametrize("name", WGMMA)
def test_a_block_computes_several_tiles(name):
    """The ring goes on from one tile to the next; 3 stages and 2 steps of K are out of step."""
    s = EightBitShape(200, 132, 256, type_of(name))
    out, inputs, _ = emulated(name, s, {"GROUP": 4}, blocks=1)
    assert correct(name, s, out, inputs)


@needs_nvrtc
@pytest.mark.parametrize("name", OURS)
def test_order_of_warps_changes_nothing_and_no_races(name):
    s = EightBitShape(70, 72, 272, type_of(name))
    first, other = [emulated(name, s, order=order, races=True) for order in ("forward", 5)]
    assert first[2].races == other[2].races == ()
    np.testing.assert_array_equal(first[0], other[0])


@needs_nvrtc
def test_int8_is_exact_at_both_of_its_limits():
    s = EightBitShape(5, 8, 1040)
    rung = OURS["mma-int8"]
    inputs = {name: np.full((n, s.K), -128, np.int8) for name, n in (("A", 5), ("B", 8))}
    out, _ = rung_runs.computed(emulator, rung, s, SMALL["mma-int8"], inputs)
    assert (out == s.K * 2**14).all()


# -- waits ------------------------------------------------------------------------------------------------
FAULTS = [
    ("  wait(full + stage, parity);", "", "before the copy that writes it was waited for"),
    ("  wait(empty + stage, parity ^ 1);", "", "arrivals at an mbarrier that waits for|still reads"),
    (
        "arrive_expecting(full + stage, STAGE)",
        "arrive_expecting(full + stage, STAGE / 2)",
        "wrong number of bytes|deadlock",
    ),
    ("wait_products<0>();\n", "\n", "may still run"),
    ("begin_products();\n", "\n", "no wgmma.fence"),
]


@needs_nvrtc
def test_a_consumer_needs_its_turn():
    """Without it, a consumer takes the phase before the one that it waits for to be this one: both have its parity."""

    def change(text: str) -> str:
        assert "wait(turn + warpgroup, turn_parity);" in text
        return text.replace("wait(turn + warpgroup, turn_parity);", "")

    with pytest.raises(EmulatorError, match="before the copy that writes it was waited for"):
        emulated("wgmma-fp8-turns", EightBitShape(200, 132, 640, FP8), {"STAGES": 4}, change, blocks=1)


@needs_nvrtc
@pytest.mark.parametrize(
    "name, old, new, message",
    [(name, *fault) for name, most in (("int8", 5), ("fp8-turns", 2), ("fp8-promoted", 2)) for fault in FAULTS[:most]],
)
def test_every_wait_of_the_ring_is_needed(name, old, new, message):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    with pytest.raises(EmulatorError, match=message):
        emulated(name := f"wgmma-{name}", EightBitShape(64, 64, 640, type_of(name)), change=change)


# -- rules ------------------------------------------------------------------------------------------------
@every(
    "name, change, tiles, rule",
    [
        ("mma-int8", {"dtype": FP8}, {}, "dtype must be int8, got fp8"),
        ("wgmma-int8", {"dtype": FP8}, {}, "dtype must be int8, got fp8"),
        ("wgmma-fp8", {"dtype": INT8}, {}, "dtype must be fp8, got int8"),
        ("wgmma-int8", {"N": 38}, {}, "N % 4 == 0, got 38 % 4"),
        ("wgmma-int8", {"K": 40}, {}, "K % 16 == 0, got 40 % 16"),
        ("wgmma-int8", {}, {"BM": 256, "BN": 256}, "a thread keeps at most 128 sums, got 256"),
        ("wgmma-fp8-promoted", {"dtype": FP8}, {"BN": 64, "WN": 128}, "BN % WN == 0, got 64 % 128"),
        ("mma-int8", {}, {"BM": 256, "BN": 256, "WM": 32, "WN": 32}, "threads <= 1024"),
        ("mma-int8", {"M": 65_535 * 256 + 1}, {}, "M <= 65535*BM (grid.y)"),
        ("torch-int8", {"M": 16}, {}, "M >= 17, got 16"),
        ("torch-fp8", {"dtype": FP8, "N": 24}, {}, "N % 16 == 0, got 24 % 16"),
    ],
)
def test_rules(name, change, tiles, rule):
    s = EightBitShape(**{"M": 64, "N": 64, "K": 64, "dtype": INT8} | change)
    rung = LADDER.rung(f"gemm-8bit/{name}")
    assert any(rule in text for text in rung.rules(s, rung.default_tiles | tiles))


@pytest.mark.parametrize("name", OURS)
def test_every_legal_set_fits_into_shared_memory(name):
    s = EightBitShape(4096, 4096, 4096, type_of(name))
    for tiles in rung_runs.legal(OURS[name], s):
        (step,) = OURS[name].build(s, tiles).steps
        emulator.check(step)
        assert step.shared <= 227 * 1024 and step.block[0] <= 1024


def test_a_shape_with_unaligned_rows_is_refused():
    with pytest.raises(RuleError, match="K % 16 == 0, got 37 % 16"):
        run("gemm-8bit/wgmma-int8", EightBitShape(61, 48, 37), engine="emulator")


# -- shape, reference ---------------------------------------------------------------------------------------
def test_shape():
    s = parse_eight_bit("M=3, N=5,K=7,dtype=fp8")
    assert s == EightBitShape(3, 5, 7, FP8) and str(s) == "M3 N5 K7 fp8"
    assert (s.flops, s.bytes) == (2 * 105, 21 + 35 + 4 * 15)
    with pytest.raises(ShapeError, match=f"K <= {MAX_INT8_K} if dtype is int8"):
        EightBitShape(1, 1, MAX_INT8_K + 1)
    EightBitShape(1, 1, MAX_INT8_K + 1, FP8)
    with pytest.raises(ShapeError, match="dtype must be one of int8, fp8"):
        EightBitShape(1, 1, 1, "fp16")


@pytest.mark.parametrize("dtype", INPUT)
def test_the_numpy_steps_are_the_definition(dtype):
    """B is given along K: element (m, n) is a row of A times a row of B."""
    s = EightBitShape(7, 9, 21, dtype)
    program = LADDER.rungs[0].build(s, LADDER.rungs[0].default_tiles)
    inputs = seeded_inputs(program.of_role(INPUT_ROLE))
    out = np.zeros((s.M, s.N), eight_bit.RESULT[dtype])
    tiled(4, 4, 8)(inputs["A"], inputs["B"], out, s.M, s.N, s.K)
    A, B = (inputs[name].astype(np.float64) for name in "AB")
    expected = np.array([[(A[m] * B[n]).sum() for n in range(s.N)] for m in range(s.M)])
    np.testing.assert_allclose(out, expected, atol=1e-5 * np.abs(A).max() * np.abs(B).max() * s.K * (dtype == FP8))


def test_eight_bit_floats_are_bytes_on_a_gpu():
    """CuPy does not know their type."""
    A = seeded_inputs(eight_bit.buffers(EightBitShape(3, 4, 5, FP8))[:1])["A"]
    assert A.dtype == "float8_e4m3fn" and stored(A.dtype) == np.uint8 and stored("float32") == np.float32
    np.testing.assert_array_equal(bits(A).view(A.dtype).astype(float), A.astype(float))


def test_given_inputs_are_rounded_and_must_be_finite():
    (a, *_) = eight_bit.buffers(EightBitShape(1, 1, 3, FP8))
    assert values.checked(a, np.array([[1.06, -447, 2.0**-9]])).astype(float).tolist() == [[1.0, -448, 2.0**-9]]
    again = values.checked(a, np.ones((1, 3)).astype(a.dtype))
    assert again.dtype == a.dtype
    with pytest.raises(RuleError, match="A must be finite in float8_e4m3fn"):
        values.checked(a, np.array([[1, 2, 1000.0]]))
