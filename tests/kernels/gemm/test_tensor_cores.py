"""The tensor-core and INT8 rungs, executed without a GPU: results at any shape, exactness of INT8, races and bank
conflicts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from kernels.gemm import tensor_cores
from kernels.gemm.reference import gemm
from kernels.gemm.shape import GemmShape
from kernels.model.program import INPUT, OUTPUT, RuleError
from kernels.model.verify import agrees
from kernels.runner import seeded_inputs
from tests.helpers.emulated import archived, needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import legal, without_barrier

RUNGS = {rung.name.removeprefix("gemm/"): rung for rung in tensor_cores.RUNGS}
DTYPES = {"wmma": ("fp16", "bf16"), "mma-sync": ("fp16", "bf16"), "dp4a": ("int8",)}
SOURCES = {"wmma": "10_wmma.cu", "mma-sync": "11_mma_sync.cu", "dp4a": "12_dp4a.cu"}
KERNELS = [(name, dtype) for name, dtypes in DTYPES.items() for dtype in dtypes]


def covering(name: str, s: GemmShape) -> Iterator[dict[str, int]]:
    """Yields few legal sets, small tiles before large ones, that together have each choice of each size."""
    missing = {(size, value) for size, values in RUNGS[name].tiles.items() for value in values}
    sets = sorted(legal(RUNGS[name], s), key=lambda tiles: tiles["BM"] * tiles["BN"])
    while missing:
        best = max(sets, key=lambda tiles: len(missing & tiles.items()))
        assert missing & best.items(), missing
        missing -= best.items()
        yield best


# Around the tile sizes, below them, odd, and multiples of 4 and 8, where rows begin on 4 and 16 bytes.
EXTENTS = st.one_of(st.integers(1, 20), st.integers(120, 140), st.integers(1, 18).map(lambda n: 8 * n))


@dataclass(frozen=True)
class EmulatedRun:
    out: np.ndarray
    inputs: dict[str, np.ndarray]
    run_info: Run

    @property
    def total(self) -> dict[str, int]:
        return self.run_info.counters.total

    @property
    def conflicts(self) -> int:
        return self.total["bank_conflicts_ld"] + self.total["bank_conflicts_st"]


def emulated(
    name: str, s: GemmShape, tiles=None, inputs=None, change=lambda text: text, count=False, legal=True, **options
) -> EmulatedRun:
    """Run the only launch of a rung, with its source changed by `change`. Inputs not given are seeded."""
    rung = RUNGS[name]
    program = rung.build(s, rung.check(s, tiles) if legal else tiles)
    (step,), (c,) = program.steps, program.of_role(OUTPUT)
    text = change(sources.translation_unit(step.source))
    ptx = compile.compile_ptx(text, step.source.rpartition("/")[2], precompiled.options(step.defines))
    all_inputs = seeded_inputs(program.of_role(INPUT)) | (inputs or {})
    memory = device_memory(all_inputs | {"C": np.zeros(c.shape, c.dtype)}, list(all_inputs))
    options = Options(count=count, **options)
    run_info = launch(ptx, step.entry, step.grid, step.block, step.args, memory, step.shared, options)
    return EmulatedRun(memory.array("C"), all_inputs, run_info)


def excess_error(s: GemmShape, result: EmulatedRun) -> float:
    """Returns by how much the worst element exceeds the emulator's rounding error.

    The emulator rounds a sum to FP32 once in 16 products, then for alpha and for beta. Each rounding is at most 2^-24
    of the sum of absolute products.
    """
    ref, scale = gemm(s, **result.inputs)
    assert result.out.shape == (s.M, s.N) and np.isfinite(result.out).all()
    rounded = 0.0 if s.dtype == "int8" else (-(-s.K // 16) + 2) * 2.0**-24
    return float((np.abs(result.out - ref) - rounded * scale).max())


@needs_nvrtc
@settings(max_examples=8)
@given(
    kernel=st.sampled_from(KERNELS),
    extents=st.tuples(EXTENTS, EXTENTS, EXTENTS),
    alpha=st.sampled_from([1, -2, 3]),
    beta=st.sampled_from([0, 1, -2]),
)
def test_every_rung_agrees_at_any_shape(kernel, extents, alpha, beta):
    name, dtype = kernel
    s = GemmShape(*extents, alpha=alpha, beta=beta, dtype=dtype)
    assert excess_error(s, emulated(name, s)) <= 0


@needs_nvrtc
@pytest.mark.parametrize("name, dtype", KERNELS)
@pytest.mark.parametrize("extents", [(130, 132, 1), (61, 45, 37), (129, 8, 72)])
def test_corner_cases(name, dtype, extents):
    """Covers K = 1; extents that no tile divides; rows of B that begin on 16 bytes."""
    s = GemmShape(*extents, beta=1, dtype=dtype)
    assert excess_error(s, emulated(name, s)) <= 0


@needs_nvrtc
@pytest.mark.parametrize("name, dtype", KERNELS)
def test_every_tile_size_agrees(name, dtype):
    """Covers each choice of each size, with copies of 16 bytes and without."""
    shapes = [GemmShape(*extents, dtype=dtype) for extents in ((72, 136, 96), (70, 131, 75))]
    tried = list(covering(name, shapes[0])) if dtype != "bf16" else [RUNGS[name].default_tiles] * 2
    for tiles, s in zip(tried, itertools.cycle(shapes), strict=False):
        assert excess_error(s, emulated(name, s, tiles)) <= 0, (tiles, s)


@needs_nvrtc
@pytest.mark.parametrize("name", ["wmma", "mma-sync"])
def test_sums_are_fp32(name):
    """The sum of 2,100 ones is 2,100. A sum in FP16 would stop at 2,048."""
    s = GemmShape(16, 16, 2100, dtype="fp16")
    ones = {"A": np.ones((16, 2100), np.float16), "B": np.ones((2100, 16), np.float16)}
    np.testing.assert_array_equal(emulated(name, s, inputs=ones).out, 2100)


@needs_nvrtc
@pytest.mark.parametrize("name", ["wmma", "mma-sync"])
def test_bf16_has_the_range_of_fp32(name):
    """Multiplies 2^100 by 2^-90: neither is an FP16 number."""
    s = GemmShape(16, 8, 24, dtype="bf16")
    inputs = seeded_inputs(RUNGS[name].build(s, RUNGS[name].default_tiles).of_role(INPUT))
    inputs = {"A": np.full_like(inputs["A"], 2.0**100), "B": np.full_like(inputs["B"], 2.0**-90)}
    np.testing.assert_array_equal(emulated(name, s, inputs=inputs).out, 24 * 2.0**10)


@needs_nvrtc
@pytest.mark.parametrize("K", [200, 201])
def test_int8_is_exact_at_its_limits(K):
    s = GemmShape(9, 12, K, alpha=-3, beta=2, dtype="int8")
    inputs = {
        "A": np.full((9, K), -128, np.int8),
        "B": np.full((K, 12), -128, np.int8),
        "C0": np.full((9, 12), 2**29, np.int32),
    }
    out = emulated("dp4a", s, inputs=inputs).out
    np.testing.assert_array_equal(out, -3 * 128 * 128 * K + 2**30)


# -- races, order, banks ------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name, dtype", [("wmma", "fp16"), ("mma-sync", "bf16"), ("dp4a", "int8")])
@pytest.mark.parametrize("extents, order", [((136, 136, 208), "reversed"), ((67, 70, 75), 7)])
def test_kernels_have_no_races(name, dtype, extents, order):
    s = GemmShape(*extents, beta=1, dtype=dtype)
    runs = [emulated(name, s, order=warp_order, races=True) for warp_order in ("forward", order)]
    assert [run.run_info.races for run in runs] == [(), ()]
    np.testing.assert_array_equal(runs[0].out, runs[1].out)


SMALL = {"BM": 64, "BN": 64, "BK": 32, "WM": 32, "WN": 32}


@needs_nvrtc
@pytest.mark.parametrize(
    "name, dtype, extents, tiles, needed",
    [
        ("wmma", "fp16", (64, 64, 40), SMALL, 3),  # tiles written, read, sums written
        (
            "mma-sync",
            "fp16",
            (64, 64, 136),
            SMALL,
            2,
        ),  # the first tiles are written; the next are written and all threads have read
        ("mma-sync", "fp16", (64, 64, 65), SMALL, 2),  # element by element: tiles written, read
        ("dp4a", "int8", (64, 64, 128), {}, 2),
    ],
)
def test_every_barrier_is_needed(name, dtype, extents, tiles, needed):
    """Without any one of the barriers, two threads race or the sums are wrong."""
    s = GemmShape(*extents, dtype=dtype)
    whole = emulated(name, s, tiles)
    detected, barriers = 0, sources.text(f"gemm/{SOURCES[name]}").count("__syncthreads();")
    for n in range(barriers):
        result = emulated(name, s, tiles, change=without_barrier(n), races=True)
        detected += bool(result.run_info.races) or not np.array_equal(result.out, whole.out)
    assert detected == needed


@needs_nvrtc
@pytest.mark.parametrize("BK", [64, 32])
def test_swizzled_tiles_have_no_bank_conflicts(BK):
    s = GemmShape(128, 128, 128, dtype="fp16")
    result = emulated("mma-sync", s, tiles={"BK": BK}, count=True)
    assert result.total["wavefronts_ld"] > 0 and result.conflicts == 0

    def plain(text: str) -> str:
        return text.replace("unsigned swizzle = ", "unsigned swizzle = 0 * ")

    assert emulated("mma-sync", s, tiles={"BK": BK}, change=plain, count=True).conflicts > 100


@needs_nvrtc
@pytest.mark.parametrize("tiles", [{}, {"BK": 32}])
def test_dp4a_has_no_bank_conflicts(tiles):
    s = GemmShape(128, 128, 64, dtype="int8")
    result = emulated("dp4a", s, tiles, count=True)
    assert result.total["wavefronts_ld"] > 0 and result.conflicts == 0

    def plain(text: str) -> str:
        return text.replace("tile_a[KP][BM + 4]", "tile_a[KP][BM]")

    assert emulated("dp4a", s, tiles, change=plain, count=True).conflicts > 0


@needs_nvrtc
@pytest.mark.parametrize("name, dtype", KERNELS)
def test_counted_flops_are_those_of_the_product(name, dtype):
    """With whole tiles, only the product's FLOPs are executed."""
    s = GemmShape(256, 128, 64, dtype=dtype)
    total = emulated(name, s, count=True).total
    assert total["flops_dp4a" if dtype == "int8" else "flops_mma"] == s.flops


@needs_nvrtc
def test_fragments_are_stored_in_whole_sectors():
    """Four lanes write the 8 floats of a sector in one request if rows begin on 8 bytes."""
    total = emulated("mma-sync", GemmShape(256, 128, 64, dtype="fp16"), count=True).total
    assert total["sectors_st"] == 256 * 128 // 8
    assert total["requests_st"] == 256 * 128 // 64
    odd = emulated("mma-sync", GemmShape(256, 127, 64, dtype="fp16"), count=True).total
    assert odd["requests_st"] == 256 * 128 // 32


@needs_nvrtc
def test_wmma_loads_tiles_16_bytes_at_a_time():
    """A warp loads 256 elements of A or B per request if rows begin on 16 bytes, else 32."""

    def requests(M, N, K) -> int:
        return emulated("wmma", GemmShape(M, N, K, dtype="fp16"), count=True).total["requests_ld"]

    assert requests(128, 128, 64) == (128 * 64 + 64 * 128) // 256
    assert requests(128, 128, 63) == 128 * 64 // 32 + 64 * 128 // 256
    assert requests(128, 127, 64) == 128 * 64 // 256 + 64 * 128 // 32


# -- rules --------------------------------------------------------------------------------------------------
# A copy pass of 512 threads is 32 rows of B, but a part has 16 rows. A pass of 256 is 64 rows of A, a part has 32.
TALL_B = {"BM": 256, "BN": 128, "BK": 64, "WM": 64, "WN": 32, "STAGES": 3, "GROUP": 8}
TALL_A = {"BM": 64, "BN": 256, "BK": 32, "WM": 64, "WN": 32, "STAGES": 4, "GROUP": 8}
RULES = [
    ("wmma", {"dtype": "fp32"}, {}, "dtype must be fp16 or bf16, got fp32"),
    ("dp4a", {"dtype": "fp16"}, {}, "dtype must be int8, got fp16"),
    ("cublas-fp16", {"dtype": "int8"}, {}, "dtype must be fp16 or bf16, got int8"),
    ("cublas-tf32", {"dtype": "bf16"}, {}, "dtype must be fp32, got bf16"),
    ("mma-sync", {"M": 65_535 * 64 + 1}, {"BM": 64, "BK": 64}, "M <= 65535*BM (grid.y), got 4194241"),
    ("mma-sync", {}, {"BN": 256, "WM": 32, "WN": 32}, "BM/WM * BN/WN * 32 threads <= 1024, got 2048"),
    ("mma-sync", {}, {"BN": 256}, "WM*WN/32 + WM/2 + WN/2 registers <= 128 (512 threads), got 192"),
    ("mma-sync", {}, TALL_B, "BK/(BK/16) rows per part % threads/(BN/8) rows per pass == 0, got 16 % 32"),
    ("mma-sync", {}, TALL_A, "BM/(BK/16) rows per part % threads/(BK/8) rows per pass == 0, got 32 % 64"),
    ("mma-sync", {}, {"BK": 64, "STAGES": 5}, "STAGES*2*(BM+BN)*BK bytes of shared memory <= 232448, got 245760"),
    ("wmma", {}, {"BN": 64, "BK": 16, "WM": 32}, "BK*BN/8 % threads == 0, got 128 % 256"),
    ("dp4a", {"dtype": "int8"}, {"BK": 16}, "BK*BN/16 % threads == 0, got 128 % 256"),
]


@every("name, shape, tiles, rule", RULES)
def test_broken_rule_is_named(name, shape, tiles, rule):
    s = GemmShape(**{"M": 64, "N": 64, "K": 64, "dtype": "fp16"} | shape)
    with pytest.raises(RuleError, match=re.escape(rule)):
        RUNGS[name].check(s, tiles)


@needs_nvrtc
@pytest.mark.parametrize("tiles", [TALL_B, TALL_A])
def test_copy_pass_larger_than_its_part_does_not_compile(tiles):
    s = GemmShape(72, 136, 200, dtype="fp16")
    with pytest.raises(compile.CompileError, match="passes fill a part"):
        emulated("mma-sync", s, tiles, legal=False)

    def unguarded(text: str) -> str:
        return re.sub(r"static_assert\(.*\);", "", text)

    with pytest.raises(EmulatorError, match=r"write at shared.* before the copy that writes it was waited for"):
        emulated("mma-sync", s, tiles, change=unguarded, legal=False, races=True)


@needs_nvrtc
@settings(max_examples=2)
@given(data=st.data(), name=st.sampled_from(list(DTYPES)), extents=st.sampled_from([(72, 136, 200), (70, 131, 75)]))
def test_legal_tile_sizes_stay_inside_their_tiles(data, name, extents):
    """Checks bounds, races and sums for any set of choices, not only for one choice changed from the default."""
    s = GemmShape(*extents, dtype=DTYPES[name][0])
    tiles = data.draw(st.sampled_from(legal(RUNGS[name], s)))
    result = emulated(name, s, tiles, races=True)
    assert result.run_info.races == () and excess_error(s, result) <= 0


@pytest.mark.parametrize("name, dtype", KERNELS)
def test_precompiled_sets_are_legal_and_one_is_small(name, dtype):
    s = GemmShape(64, 64, 64, dtype=dtype)
    rung, sets = RUNGS[name], list(RUNGS[name].tile_sets(s))
    assert sets == [rung.default_tiles, *(rung.default_tiles | dict(tiles) for tiles in rung.sets)]
    assert any(tiles["BM"] == min(rung.tiles["BM"]) and tiles["BN"] == min(rung.tiles["BN"]) for tiles in sets)


def test_committed_kernels_are_small_and_match_the_rungs():
    shapes = [GemmShape(64, 64, 64, dtype=dtype) for dtype in ("fp16", "bf16", "int8")]
    names = {
        precompiled.archive_entry(step.source, step.defines)[1]
        for name, dtypes in DTYPES.items()
        for s in shapes
        if s.dtype in dtypes
        for tiles in RUNGS[name].tile_sets(s)
        for step in RUNGS[name].build(s, tiles).steps
    }
    committed, stems = archived("gemm"), {source[:-3] for source in SOURCES.values()}
    assert {name for name in committed if name.partition(".")[0] in stems} == names
    assert sum(committed[name] for name in names) < 500_000 and sum(committed.values()) < 1_300_000


@pytest.mark.parametrize("name, dtype", KERNELS)
def test_legal_tile_sizes_are_valid_cuda_launches(name, dtype):
    s = GemmShape(300, 300, 300, dtype=dtype)
    sets = legal(RUNGS[name], s)
    assert len(sets) >= 8
    for tiles in sets:
        (step,) = RUNGS[name].build(s, tiles).steps
        threads = int(np.prod(step.block))
        assert threads % 32 == 0 and 32 <= threads <= 1024 and step.shared <= 227 * 2**10


# -- CPU and libraries --------------------------------------------------------------------------------------
def test_tf32_has_ten_bits_of_fraction():
    x = np.float32([1, 1 + 2**-10, 1 + 2**-11 + 2**-20, 1 + 2**-12, -(1 + 2**-11 + 2**-20), 0])
    np.testing.assert_array_equal(tensor_cores.tf32(x), np.float32([1, 1 + 2**-10, 1 + 2**-10, 1, -(1 + 2**-10), 0]))


@every("name, dtype", [*KERNELS, ("cublas-tf32", "fp32"), ("cublas-fp16", "fp16"), ("cublas-fp16", "bf16")])
@every("beta", [0, 2])
def test_cpu_implementations_agree_with_the_reference(name, dtype, beta):
    s = GemmShape(37, 45, 70, alpha=-2, beta=beta, dtype=dtype)
    rung = RUNGS[name]
    program = rung.build(s, rung.check(s, None))
    arrays = seeded_inputs(program.of_role(INPUT))
    ref, scale = gemm(s, **arrays)
    (c,) = program.of_role(OUTPUT)
    arrays["C"] = np.zeros(c.shape, c.dtype)
    for step in program.steps:
        step.cpu(*(arrays[a] if isinstance(a, str) else a for a in step.args))
    assert agrees(arrays["C"], ref, scale, rung.tolerance)
    if name == "cublas-tf32":  # and it is not FP32
        assert not agrees(arrays["C"], ref, scale, 1e-5)
