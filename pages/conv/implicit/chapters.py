"""The chapters of the lesson on implicit GEMM."""

from __future__ import annotations

from kernels.i18n import mark
from pages.parts.chapters import LIMITS, Chapter, Question, Story, faster, nothing_limits
from visuals import units
from visuals.conv.implicit.gpu_map import implicit_map
from visuals.conv.implicit.plan import why_not
from visuals.gpu_map import facts as map_facts
from visuals.gpu_map.data import GpuMap
from visuals.strip.facts import Evidences, Facts, faster_than, limited_by, within

CUBLAS = "conv/im2col-cublas"
# Small enough to print every number; the tiles are the smallest of the kernel.
SMALL = {"C": "2", "H": "4", "W": "4", "K": "2", "pad_h": "0", "pad_w": "0", "picture": "numbers"}
SMALL |= {"BM": "32", "BN": "32", "BK": "8", "TM": "4", "TN": "4", "STAGES": "2"}
ONE = SMALL | {"C": "1"}
REAL = {"N": "32", "C": "128", "H": "28", "W": "28", "K": "128"}  # a layer of ResNet-50
TIMES = (mark("Up to 5 times"), mark("5 to 30 times"), mark("More than 30 times"))


def _map(evidences: Evidences) -> GpuMap | None:
    """Returns the GPU map of the kernel on the stage."""
    at = evidences["stage"]
    tiles = {**at.rung.default_tiles, **at.tiles}
    if why_not(at.shape, at.rung.name, tiles):
        return None
    return implicit_map(at.shape, at.rung.name, tiles, count=False)


def _times_from_l2(evidences: Evidences) -> float | None:
    return map_facts.times_from_l2(_map(evidences))


def facts(evidences: Evidences) -> Facts:
    """Returns the size of the data matrix that is not stored, at both sizes, and the figures of the GPU map."""
    found = map_facts.facts(_map(evidences))
    times = _times_from_l2(evidences)
    found["map_times"] = f"{times:.0f}" if times else ""
    for size, evidence in evidences.items():
        s = evidence.shape
        found[f"{size}_matrix"] = f"{units.count(s.CRS)}×{units.count(s.N * s.PQ)}"
        found[f"{size}_matrix_bytes"] = units.bytes_(4 * s.N * s.CRS * s.PQ)
    return found


CHAPTERS = (
    Chapter(
        mark("A matrix that nobody stores"),
        (
            mark("im2col writes each window of the [input](input) into a [data matrix](workspace). At {real_shape} that is {real_matrix_bytes}."),
            mark("But each element of the matrix is a pixel that is already in memory. Its row and column say which one, so the kernel needs no copy."),
        ),
        ONE,
        readable=("D", "x"),
        pin="D:17",
        size="real",
        nudge=mark("Point at a cell of the data matrix: its pixel lights up."),
    ),
    Chapter(
        mark("Row and column name a pixel"),
        (
            mark("A row of the matrix is a channel c and a place r, s in the filter. A column is an image n and an output pixel p, q."),
            mark("Here the pixel is in row h = p − pad + r and column w = q − pad + s. The thread loads it into shared memory."),
        ),
        ONE,
        readable=("D", "x"),
        step=2,
        size="real",
    ),
    Chapter(
        mark("Only a tile at a time"),
        (
            mark("A block needs a few rows of the matrix at once, here 8. It copies them from the image into shared memory, multiplies, and moves on."),
            mark("After a barrier, the next tile overwrites the old one. The full matrix never exists."),
        ),
        SMALL,
        readable=("Bs0",),
        loop=(1, 17),
        step=11,
        size="real",
    ),
    Chapter(
        mark("Copy ahead"),
        (
            mark("Three buffers are used in turn. While the block multiplies one tile, the copies of the next ones are on their way."),
            mark("Each column is one step. Watch buffer 0, the first row: tile 4 follows once tile 1 is used."),
        ),
        {"order": "timeline"},
        step=5,
        loop=(4, 9),
        size="real",
        question=Question(mark("What limits the kernel now?"), LIMITS, limited_by("real"), mark("None of the three: arithmetic is at {real_arithmetic} of its ceiling. For each copy of four bytes a thread computes an address and tests the borders.")),
        holds=nothing_limits("real"),
    ),
    Chapter(
        mark("Where do the bytes go?"),
        (
            mark("The map shows a layer of ResNet-50 on the whole GPU: {map_blocks} blocks in {map_waves} waves."),
            mark("The [data matrix](workspace) would be {stage_matrix_bytes}. Only the image and the filters come from HBM: {map_hbm}."),
            mark("The bytes from L2 are predicted: a pixel leaves L2 once for each window over it and each block of filters."),
        ),
        REAL | {"order": "map"},
        step=1,
        question=Question(
            mark("By this prediction, how many bytes leave L2 for each byte from HBM?"),
            TIMES,
            within((5, 30), _times_from_l2),
            mark("{map_times}: we predict that the SMs load {map_l2} from L2. The L2 cache delivers what im2col would store."),
        ),
    ),
    Chapter(
        mark("Division is slow"),
        (
            mark("To find c, r and s from a row, the thread divides. Dividing whole numbers takes many instructions on a GPU."),
            mark("The divisors never change. So a multiplication and a shift can replace each division."),
        ),
        ONE | {"rung": "implicit-gemm-plain"},
        readable=("D", "x"),
        step=2,
        size="real",
        question=faster(
            mark("Your guess: is this version, which divides, slower than the one that multiplies?"),
            "conv/implicit-gemm", "real",
            mark("With divisions it takes {real_time}, without {real_time_implicit_gemm}."),
        ),
    ),
    Chapter(
        mark("Was it worth it?"),
        (
            mark("The multiply-adds are the same as in im2col. What is gone is the copy: {real_matrix_bytes} written and read back."),
            mark("The fairest comparison is im2col with the product of cuBLAS: our own GEMM there is a simple one."),
        ),
        ONE,
        readable=("D", "x"),
        step=12,
        size="real",
        question=faster(
            mark("Your guess: is it faster than im2col with cuBLAS?"),
            CUBLAS, "real",
            mark("It takes {real_time}. {real_against_im2col_cublas} {real_against_im2col_gemm}"),
        ),
        nudge=mark("Compare the memory, too: the strip shows no workspace."),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("Libraries use implicit GEMM for most convolutions. It fits any shape and needs no extra memory."),
            mark("To go further, one must do less arithmetic: [Winograd](/winograd) and [FFT](/fft)."),
        ),
        ONE,
        readable=("D", "x"),
        step=12,
        size="real",
        holds=faster_than("real", "conv/im2col-gemm", CUBLAS),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
