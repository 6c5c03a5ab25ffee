"""The rungs of the GEMM ladder for Hopper: FP16 and BF16 by wgmma, the copy engine (TMA) and warpgroups with roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernels.gemm import common
from kernels.gemm.cpu import tiled
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil, hopper, launch
from kernels.model.program import Arg, Program, Tiles
from kernels.model.rules import MAX_SHARED, dtype_rules, extent_multiple_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES, Rung
from kernels.model.tensor_map import TensorMap

HALVES = ("fp16", "bf16")
BK = 64  # of a tile: a row of A has 128 bytes
CHUNK = 64  # columns of B in a box: a row of it has 128 bytes
WARPGROUP = 128  # threads
SWIZZLE = 128  # bytes
BOX_ROWS, BOX_COLS = 64, 32  # of C, in the rung that stores by the copy engine
CLUSTER = 2  # blocks
BARRIER = 8  # bytes
# As of the other rungs on tensor cores: their sums are truncated, not rounded.
TOLERANCE = 1e-4


# -- programs -------------------------------------------------------------------------------------------
def map_a(s: GemmShape, rows: int) -> TensorMap:
    """Returns the map of A [M, K], in boxes of `rows` x BK."""
    return TensorMap("A", INPUT_DTYPE[s.dtype], (s.K, s.M), (2 * s.K,), (BK, rows), SWIZZLE)


def map_b(s: GemmShape) -> TensorMap:
    """Returns the map of B [K, N], in boxes of BK x CHUNK."""
    return TensorMap("B", INPUT_DTYPE[s.dtype], (s.N, s.K), (2 * s.N,), (CHUNK, BK), SWIZZLE)


def map_c(s: GemmShape) -> TensorMap:
    """Returns the map of C [M, N], FP32, in boxes of BOX_ROWS x BOX_COLS."""
    return TensorMap("C", "float32", (s.N, s.M), (4 * s.N,), (BOX_COLS, BOX_ROWS), SWIZZLE)


def ring_bytes(tiles: Tiles) -> int:
    """Returns the bytes of STAGES tiles of A and B, and of the two barriers of each stage."""
    return tiles["STAGES"] * (2 * BK * (tiles["BM"] + tiles["BN"]) + 2 * BARRIER)


def stored_bytes(tiles: Tiles) -> int:
    """Returns the bytes of the ring and of two boxes of C for each of two consumers."""
    return ring_bytes(tiles) + 2 * 2 * 4 * BOX_ROWS * BOX_COLS


def turns_bytes(tiles: Tiles) -> int:
    """Returns the bytes of the ring, of two boxes of C for each of two consumers, and of a barrier of each for its turn."""
    return stored_bytes(tiles) + 2 * BARRIER


def one_stage_bytes(tiles: Tiles) -> int:
    return 2 * BK * (tiles["BM"] + tiles["BN"]) + BARRIER


def _launch(
    s: GemmShape, source: str, grid: tuple[int, ...], threads: int, tiles: Tiles, shared: int, c: Arg = "C"
) -> Program:
    _, _, c0, _, *rest = common.arguments(s)
    args = (map_a(s, tiles["BM"]), map_b(s), c0, c, *rest)
    defines = {name: value for name, value in tiles.items() if name != "BLOCKS"} | {"BF16": int(s.dtype == "bf16")}
    cpu_function = tiled(tiles["BM"], tiles["BN"], BK)
    step = launch(f"gemm/{source}", grid, threads, args, cpu_function, defines, shared, "blocked_product")
    return Program(common.buffers(s), (step,))


def _grid(s: GemmShape, tiles: Tiles) -> tuple[int, int]:
    return ceil(s.N, tiles["BN"]), ceil(s.M, tiles["BM"])


def build_wgmma(s: GemmShape, tiles: Tiles) -> Program:
    threads = tiles["BM"] // 64 * WARPGROUP
    return _launch(s, "13_wgmma.cu", _grid(s, tiles), threads, tiles, one_stage_bytes(tiles))


def build_ring(s: GemmShape, tiles: Tiles) -> Program:
    return _launch(s, "14_wgmma_ring.cu", _grid(s, tiles), 2 * WARPGROUP, tiles, ring_bytes(tiles))


def build_consumers(s: GemmShape, tiles: Tiles) -> Program:
    return _launch(s, "15_wgmma_consumers.cu", _grid(s, tiles), 3 * WARPGROUP, tiles, ring_bytes(tiles))


def build_persistent(s: GemmShape, tiles: Tiles) -> Program:
    across, down = _grid(s, tiles)
    blocks = min(across * down, tiles["BLOCKS"])
    return _launch(s, "16_wgmma_persistent.cu", (blocks,), 3 * WARPGROUP, tiles, ring_bytes(tiles))


def build_store(s: GemmShape, tiles: Tiles) -> Program:
    across, down = _grid(s, tiles)
    blocks = min(across * down, tiles["BLOCKS"])
    return _launch(s, "17_wgmma_store.cu", (blocks,), 3 * WARPGROUP, tiles, stored_bytes(tiles), map_c(s))


def build_cluster(s: GemmShape, tiles: Tiles) -> Program:
    """Returns a launch of clusters of two blocks, whose tiles are one above the other."""
    clusters = ceil(s.N, tiles["BN"]) * ceil(s.M, CLUSTER * tiles["BM"])
    blocks = min(CLUSTER * clusters, tiles["BLOCKS"])
    return _launch(s, "18_wgmma_cluster.cu", (blocks,), 3 * WARPGROUP, tiles, stored_bytes(tiles), map_c(s))


def build_turns(s: GemmShape, tiles: Tiles) -> Program:
    across, down = _grid(s, tiles)
    blocks = min(across * down, tiles["BLOCKS"])
    return _launch(s, "19_wgmma_turns.cu", (blocks,), 3 * WARPGROUP, tiles, turns_bytes(tiles), map_c(s))


# -- rules ----------------------------------------------------------------------------------------------
def rules(formula: str, shared: Callable[[Tiles], int], consumers: int = 0):
    """Returns the rules of a rung. `shared`: its bytes of shared memory, by the `formula`; `consumers`: warpgroups that
    share the sums of a tile, 0 if there is one for each 64 rows."""

    def check(s: GemmShape, tiles: Tiles) -> Iterator[str]:
        yield from dtype_rules(s, *HALVES)
        yield from aligned_rules(s)
        yield from common.extent_rules(s, tiles["BM"], tiles["BN"], BK)
        sums = tiles["BM"] * tiles["BN"] // WARPGROUP // (consumers or tiles["BM"] // 64)
        if sums > 128:
            yield tr("a thread keeps at most 128 sums, got {sums}", sums=sums)
        yield from shared_rules(formula, shared(tiles), MAX_SHARED)

    return check


def aligned_rules(s: GemmShape) -> Iterator[str]:
    """Yields a rule for each extent whose rows do not begin at multiples of 16 bytes, as the copy engine needs."""
    yield from extent_multiple_rules(8, N=s.N, K=s.K)


RING = "STAGES*(128*(BM+BN) + 16)"
NO_WGMMA = mark("NumPy has no tensor cores; without them this is a blocked product in FP32")
# Defaults are the fastest measured at 4096, on an H100, and of consumers that take turns on an H200.
TALL = {"BM": (256, 128), "BN": (128, 256, 64), "STAGES": (4, 3)}
PERSISTENT = {"BM": (128, 256), "BN": (256, 128, 64), "STAGES": (4, 3), "GROUP": (8, 4, 16), "BLOCKS": (128, 132)}
TURNS = {"BM": (128, 64), "BN": (128, 64, 256), "STAGES": (6, 8, 12, 4), "GROUP": (8, 4, 16), "BLOCKS": (128, 132)}
# For few tiles: more blocks have work, and deeper rings hide the time of the first copies.
SMALL_TURNS = {"BM": 64, "STAGES": 8, "BLOCKS": 132}
# Tiles of 128 x 128, two for each multiprocessor. Measured: 48, 144 and 192, and 1,024, where the small ones lose.
FEW_TILES = 264
PAIRED = PERSISTENT | {"BN": (256, 128)}  # each block of a cluster loads half of the boxes of 64 columns


def faster_turns(s: GemmShape) -> Tiles:
    """Returns tile sizes for a shape of more than 128 rows with few tiles."""
    return SMALL_TURNS if s.M > 128 and ceil(s.M, 128) * ceil(s.N, 128) < FEW_TILES else {}


def _rung(name: str, title: str, idea: str, build, check, tiles, *sets: Tiles, faster=None) -> Rung:
    return Rung(
        f"gemm/{name}",
        title,
        idea,
        build,
        common.cost,
        check,
        TOLERANCE,
        tiles,
        sets=sets,
        faster=faster,
        units=TENSOR_CORES,
        capability=hopper,
        last_capability=HOPPER,
        not_on_cpu=NO_WGMMA,
    )


RUNGS: tuple[Rung, ...] = (
    _rung(
        "wgmma",
        mark("wgmma and TMA"),
        mark(
            "The copy engine (TMA) fills swizzled tiles. A warpgroup of 128 threads multiplies matrices in shared memory by "
            "one instruction."
        ),
        build_wgmma,
        rules("128*(BM+BN) + 8", one_stage_bytes),
        {"BM": (128, 64, 256), "BN": (128, 64, 256)},
        {"BM": 64, "BN": 64},
    ),
    _rung(
        "wgmma-ring",
        mark("producer and consumer"),
        mark("One warpgroup only loads tiles, into a ring of stages. Another one only multiplies them."),
        build_ring,
        rules(RING, ring_bytes, 1),
        {"BM": (128, 64), "BN": (128, 64, 256), "STAGES": (4, 5, 3, 2)},
        {"BM": 64, "BN": 64, "STAGES": 2},
    ),
    _rung(
        "wgmma-consumers",
        mark("two consumers, larger tile"),
        mark("Two warpgroups share a tile of 256 x 128. The producer gives them its registers."),
        build_consumers,
        rules(RING, ring_bytes, 2),
        TALL,
    ),
    _rung(
        "wgmma-persistent",
        mark("persistent blocks"),
        mark(
            "Each multiprocessor has one block that computes many tiles. It loads the next tile while it stores the last."
        ),
        build_persistent,
        rules(RING, ring_bytes, 2),
        PERSISTENT,
    ),
    _rung(
        "wgmma-store",
        mark("stores by the copy engine"),
        mark("Sums go to shared memory. The copy engine writes them to C while the warpgroup goes on."),
        build_store,
        rules(f"{RING} + 32768", stored_bytes, 2),
        PERSISTENT,
    ),
    _rung(
        "wgmma-cluster",
        mark("clusters with multicast"),
        mark("Two blocks form a cluster. Each loads half of the tile of B that both need, and the copy goes to both."),
        build_cluster,
        rules(f"{RING} + 32768", stored_bytes, 2),
        PAIRED,
    ),
    _rung(
        "wgmma-turns",
        mark("consumers take turns"),
        mark("Each consumer has a tile of its own. One multiplies while the other one stores."),
        build_turns,
        rules(f"{RING} + 32784", turns_bytes, 1),
        TURNS,
        SMALL_TURNS,
        faster=faster_turns,
    ),
)
