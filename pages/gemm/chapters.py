"""The chapters of the lesson on tiling: the ladder of matrix products, climbed rung by rung."""

from __future__ import annotations

from dataclasses import replace

from kernels.i18n import mark
from pages.parts.chapters import LIMITS, Chapter, Question, Story, faster
from visuals.gemm.gpu_map import gemm_map
from visuals.gemm.plan import why_not
from visuals.gpu_map import facts as map_facts
from visuals.gpu_map.data import GpuMap
from visuals.strip import limits
from visuals.strip.facts import Evidences, Facts, faster_than, limited_by, ratio, within

SMALL = {"M": "8", "N": "8", "K": "8"}  # few enough cells to print their numbers
DEEP = SMALL | {"K": "16"}  # two tiles of 8
WIDE = {"M": "32", "N": "32", "K": "16", "BM": "32", "BN": "32", "BK": "8"}
FP16 = {"dtype": "fp16"}
COUNTS = ("4", "16", "64", "128")
TIMES = ("1", "32", "128", "4,096")
REAL = {"M": "4096", "N": "4096", "K": "4096"}
SPEEDUPS = (mark("Up to 3×"), mark("3× to 20×"), mark("More than 20×"))


def _speedup(evidences: Evidences) -> float | None:
    """Returns the time of the naive kernel over that of the kernel on the stage, at the real size."""
    return ratio(evidences["real"], "gemm/naive") if "real" in evidences else None


def _map(evidences: Evidences) -> GpuMap | None:
    """Returns the GPU map of the kernel on the stage."""
    at = evidences["stage"]
    tiles = {**at.rung.default_tiles, **at.tiles}
    if why_not(at.shape, at.rung.name, tiles):
        return None
    return gemm_map(at.shape, at.rung.name, tiles, count=False)


def _times_from_l2(evidences: Evidences) -> int | None:
    times = map_facts.times_from_l2(_map(evidences))
    return TIMES.index(f"{times:,.0f}") if times and f"{times:,.0f}" in TIMES else None


def facts(evidences: Evidences) -> Facts:
    """Returns what a thread reads and multiplies for one k, at the tile sizes of the strip's real size, and the figures of
    the GPU map."""
    tiles = evidences["real" if "real" in evidences else "stage"].tiles
    rows, cols = tiles.get("TM", 1), tiles.get("TN", 1)
    found = _map(evidences)
    times = map_facts.times_from_l2(found)
    return {
        "reads": str(rows + cols),
        "products": str(rows * cols),
        "map_times": f"{times:,.0f}" if times else "",
        **map_facts.facts(found),
    }


def _products(evidences: Evidences) -> int | None:
    found = facts(evidences)["products"]
    return COUNTS.index(found) if found in COUNTS else None


def _already_limited_by_arithmetic(evidences: Evidences) -> bool | None:
    """Returns whether arithmetic limits the kernel before the double buffer as well; None without figures."""
    real = evidences.get("real")
    if not real or "gemm/bank-free" not in real.rows:
        return None
    before = replace(real, rung=real.ladder.rung("gemm/bank-free"), totals=None)
    return limits.limiting(limits.shares(before)) == "arithmetic"


CHAPTERS = (
    Chapter(
        mark("One thread, one element of C"),
        (
            mark("C = A × B: each element of [C](output) is one row of [A](input) times one column of [B](filter)."),
            mark("The first kernel starts one thread for each element of [C](output). Each of its reads goes to global memory, the GPU’s large and slow memory."),
            mark("Press Play and follow thread 0; the outlines are what its whole warp reads."),
        ),
        SMALL | {"rung": "naive", "BLOCK": "8"},
        loop=(1, 5),
        size="real",
        nudge=mark("In the code, alpha scales the product and beta adds the old C: here they are 1 and 0."),
    ),
    Chapter(
        mark("Which thread gets which element?"),
        (
            mark("32 threads are a warp, and a warp’s load arrives in sectors of 32 bytes."),
            mark("Here neighbouring threads get neighbouring rows of [A](input). Each step is one load of warp 0: count its sectors."),
        ),
        SMALL | {"rung": "uncoalesced", "BLOCK": "8", "order": "warps"},
        step=1,
        size="real",
        question=faster(
            mark("Your guess: is this kernel faster than the first one, which gives neighbouring threads neighbouring columns?"),
            "gemm/naive", "real",
            mark("It takes {real_time}. {real_against_naive} Only the roles of row and column were swapped."),
        ),
        nudge=mark("[Threads](/threads) shows why: look for coalescing."),
    ),
    Chapter(
        mark("Share a tile"),
        (
            mark("All 8 threads of a row of the block read the same values of [A](input). So the block copies a tile once into shared memory, small and fast, and reads each value there 8 times."),
            mark("All threads wait at two barriers for each tile: until it is complete, and until all have read it. Then the next tile along k overwrites it."),
        ),
        DEEP | {"rung": "shared-tile", "BM": "8", "BN": "8", "BK": "8"},
        readable=("tile_a", "tile_b"),
        step=1,
        loop=(1, 18),
        size="real",
        question=faster(
            mark("Your guess: is it faster than the first kernel?"),
            "gemm/naive", "real",
            mark("Shared tile takes {real_time}. {real_against_naive}"),
        ),
        nudge=mark("One multiply-add still needs two reads of shared memory: that is the next limit."),
    ),
    Chapter(
        mark("Where do the bytes go?"),
        (
            mark("This is the whole GPU: the {map_blocks} blocks of a real product run on its {map_sms} SMs in {map_waves} waves. Step through them."),
            mark("[A](input) and [B](filter) are {map_hbm} in global memory (HBM). But the blocks load {map_l2} from the L2 cache, because each block loads its tiles again."),
        ),
        REAL | {"rung": "shared-tile", "order": "map"},
        step=1,
        question=Question(
            mark("How many times does each value of A and B leave L2?"),
            TIMES,
            _times_from_l2,
            mark("{map_times} times. From shared memory the threads then load {map_near}. No bar at the right counts these loads."),
        ),
        nudge=mark("In Explore, choose a register tile and compare the arrow that leaves L2."),
    ),
    Chapter(
        mark("More sums for each thread"),
        (
            mark("So far 4 multiply-adds need 8 reads of shared memory. A thread that keeps a column of 4 sums in registers needs only 5."),
            mark("With a square of 4 × 4 sums, on the stage, a thread reads 4 + 4 values for 16 multiply-adds."),
        ),
        WIDE | {"rung": "register-tile-2d", "TM": "4", "TN": "4"},
        readable=("a", "b", "acc"),
        step=4,
        loop=(3, 9),
        size="real",
        question=Question(
            mark("The recorded kernel has 8 × 8 sums. How many multiply-adds follow from its {reads} reads?"),
            COUNTS,
            _products,
            mark("{products}: the work grows with the area. The square takes {real_time}, the column {real_time_register_tile_1d}, the shared tile {real_time_shared_tile}."),
            ("gemm/shared-tile", "gemm/register-tile-1d"),
        ),
        nudge=mark("A square of 16 × 16 sums does not fit: a thread has at most 255 registers."),
    ),
    Chapter(
        mark("Wide loads, no conflicts"),
        (
            mark("Shared memory has 32 banks, and two lanes that want different words of one bank must wait for each other."),
            mark("This kernel loads four floats in one instruction, and shifts each row of the tile so that its stores have no bank conflict."),
            mark("{real_against_vectorized} That kernel has the wide loads alone."),
        ),
        WIDE | {"rung": "bank-free", "TM": "4", "TN": "4"},
        readable=("who",),
        step=1,
        size="real",
        nudge=mark("In Explore, choose “vectorized” and the order “warps”: its stores take more passes."),
        holds=faster_than("real", "gemm/vectorized"),
    ),
    Chapter(
        mark("Copy while you compute"),
        (
            mark("So far all threads wait until a tile has arrived. This kernel starts the copy of a later tile (cp.async), then multiplies the current one."),
            mark("Each column is one step: while tile 1 is multiplied, the copies of tiles 2 and 3 to other buffers can run."),
            mark("It takes {real_time}, the kernel before {real_time_bank_free}."),
        ),
        {"M": "256", "N": "256", "K": "256", "rung": "double-buffer", "order": "timeline"},
        step=5,
        loop=(0, 9),
        size="real",
        question=Question(mark("What limits it now?"), LIMITS, limited_by("real"), mark("Arithmetic, at {real_arithmetic}. It also limited the kernel before: little waiting was left to hide.")),
        holds=_already_limited_by_arithmetic,
        nudge=mark("In Explore, choose “shared-memory tile”: copy and multiply alternate."),
    ),
    Chapter(
        mark("A tile for each warp"),
        (
            mark("This kernel gives each warp a tile of its own. Its lanes then share more of what they read."),
            mark("From the first kernel to here, the algorithm never changed: only where values are kept."),
            mark("In Explore, three more kernels follow: operands loaded ahead, grouped order of blocks, a producer that transposes."),
        ),
        WIDE | {"rung": "warp-tile", "WM": "32", "WN": "16", "TM": "4", "TN": "4", "STAGES": "2"},
        readable=("who",),
        step=1,
        size="real",
        question=Question(
            mark("Your guess: how much faster is it than the first kernel?"),
            SPEEDUPS,
            within((3, 20), _speedup),
            mark("{real_against_naive} {real_against_cublas}"),
            ("gemm/naive",),
        ),
        nudge=mark("cuBLAS can also use tensor cores for FP32 (TF32, fewer digits): {real_time_cublas_tf32}; 3xTF32 on wgmma keeps the digits."),
    ),
    Chapter(
        mark("Tensor cores"),
        (
            mark("A tensor core multiplies small matrices in one instruction, here from FP16 inputs with FP32 sums."),
            mark("The lanes of a warp hold the operands together, in fragments: each step shows those of one lane, which wmma, an older way, hides."),
            mark("dp4a needs no tensor core: it adds four products of INT8 values, after quantisation."),
        ),
        {"M": "64", "N": "64", "K": "64", "rung": "mma-sync", "order": "fragments"} | FP16,
        size="real",
        question=faster(
            mark("Your guess: is it faster than cuBLAS, also with FP16?"),
            "gemm/cublas-fp16", "real",
            mark("{real_against_cublas_fp16} {real_against_wmma} The lesson [Hopper](/hopper) goes on with wgmma."),
        ),
        nudge=mark("Later, [im2col](/im2col) turns a convolution into this product."),
    ),
)  # fmt: skip


STORY = Story(CHAPTERS, facts)
