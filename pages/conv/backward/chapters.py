"""The chapters of the lesson on convolution backward."""

from __future__ import annotations

from kernels.conv.backward import dweight
from kernels.conv.backward.dinput import phase_count
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.ladders import find
from kernels.model.launch import ceil
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.conv.backward.links import Links
from visuals.conv.backward.notes import PARTS, links, most_additions
from visuals.strip.facts import Evidences, Facts

DENSE = {"u": "1", "v": "1"}  # stride 1
SPLIT = {"gradient": "filters", "rung": "implicit-gemm", "N": "2", "H": "8", "W": "8"}
LARGER = {"gradient": "transposed", "rung": "implicit-gemm", "output_pad_h": "1", "output_pad_w": "1"}
PRODUCT = "gemm_transposed"  # the launch that these kernels share
REACHED = ("1", "2", "4", "9")  # taps that reach a pixel


def _reached(evidences: Evidences) -> int | None:
    """Returns the index in REACHED of the most taps that lead from a pixel to an output."""
    most = str(most_additions(_conv(evidences["stage"].shape)))
    return REACHED.index(most) if most in REACHED else None


def _conv(s: ConvShape | TransposeShape) -> ConvShape:
    return s.conv if isinstance(s, TransposeShape) else s


def facts(evidences: Evidences) -> Facts:
    """Returns what the sums, columns and parts of each size count, and the recorded times of the matrix product in the two
    kernels that store the columns."""
    found = {}
    for size, evidence in evidences.items():
        counted = _counts(_conv(evidence.shape))
        found |= {f"{size}_{name}": text for name, text in counted.items()}
    for rung in ("gemm-atomics", "gemm-gather"):
        row = evidences["real"].rows.get(f"conv-dinput/{rung}") if "real" in evidences else None
        product = (row or {}).get("parts_ms", {}).get(PRODUCT)
        found[f"product_{rung.replace('-', '_')}"] = units.time_(product) if product else ""
    return found


def _counts(s: ConvShape) -> Facts:
    tiles = find(PARTS).default_tiles
    blocks = ceil(s.CRS, tiles["BN"]) * ceil(s.filters, tiles["BM"]) * s.groups
    return {
        "additions": units.whole(s.N * s.C * links(s)),
        "pixels": units.whole(s.elements["x"]),
        "columns": units.bytes_(4 * s.N * s.groups * s.CRS * s.PQ),
        "corner": str(len(Links(s.with_(N=1, C=1, K=1, groups=1)).fed(0, 0)[0])),
        "most": str(most_additions(s)),
        "area": str(s.R * s.S),
        "phases": str(phase_count(s)),
        "terms": units.whole(s.N * s.PQ),
        "taps": units.whole(s.elements["w"]),
        "tiles": units.whole(blocks),
        "parts": units.whole(ceil(s.N * s.PQ, dweight.terms_of_part(s, tiles))),
        "sms": str(dweight.SMS),
    }


CHAPTERS = (
    Chapter(
        mark("Which outputs did this pixel feed?"),
        (
            mark("Training needs a gradient for each value: how much the loss, the error of the network, changes with it."),
            mark("Forward, a pixel is read by several outputs. Each reads it through one [tap](filter)."),
            mark("So the [gradient of the pixel](output) is a sum over these outputs: [their gradient](input) times the tap."),
        ),
        DENSE,
        step=15,
        pin="dx:7",
        nudge=mark("Point at another pixel: the outputs that it fed are outlined."),
    ),
    Chapter(
        mark("The same links, backwards"),
        (
            mark("Forward, output p reads row h = p − pad + r. Backward, row h finds output p = h + pad − r."),
            mark("The thread tries each tap: of the {stage_area} taps of pixel (0, 0), {stage_corner} lead to an output. The others lead outside."),
        ),
        DENSE,
        loop=(0, 8),
        pin="dy:7",
        nudge=mark("Point at an output: its gradient goes back to the pixels that it read."),
    ),
    Chapter(
        mark("A stride leaves holes"),
        (
            mark("With stride 2, the windows of two outputs begin two pixels apart. So h + pad − r must be even, or no output read this pixel through this tap."),
            mark("The [spread gradient](workspace) shows the holes as empty cells. The kernel does not store it: it divides, and skips a tap that leaves a remainder."),
        ),
        loop=(0, 6),
        readable=("spread",),
        question=Question(
            mark("At most how many of the {stage_area} taps lead from one pixel to an output now?"),
            REACHED,
            _reached,
            mark("{stage_most}. See pixel (1, 1). The other taps lead into holes."),
        ),
    ),
    Chapter(
        mark("Add back, or read back?"),
        (
            mark("One matrix product gives a [gradient for each column](workspace) of im2col, which is added back to the pixels of its window."),
            mark("Windows overlap: {stage_additions} atomic additions go to {stage_pixels} pixels. Those to one pixel happen one after the other."),
            mark("A gather has one thread for each pixel, which reads the same elements and stores once."),
        ),
        {"rung": "gemm-atomics"},
        step=6,
        loop=(2, 10),
        pin="dx:7",
        size="real",
        question=faster(
            mark("{real_additions} additions at {real_shape}. Your guess: is the gather faster than atomics?"),
            "conv-dinput/gemm-atomics", "real",
            mark("By atomics {real_time}, by gather {real_time_gemm_gather}. Most of both is the same matrix product, {product_gemm_gather}."),
            of="conv-dinput/gemm-gather",
        ),
    ),
    Chapter(
        mark("Phases without holes"),
        (
            mark("The columns of {real_shape} take {real_columns}. Implicit GEMM stores none: it makes each tile in shared memory."),
            mark("Pixels with the same remainders by the stride use the same taps, so their tiles have no holes. They form a [phase](output): stride 2 gives {real_phases}, each a matrix product."),
        ),
        {"rung": "implicit-gemm"},
        readable=("B0", "sums"),
        step=13,
        loop=(0, 15),
        size="real",
        question=faster(
            mark("Your guess: is it faster than the product with a gather?"),
            "conv-dinput/gemm-gather", "real",
            mark("It takes {real_time}. {real_against_gemm_gather} There our simple GEMM alone takes {product_gemm_gather}."),
        ),
    ),
    Chapter(
        mark("Winograd, backwards"),
        (
            mark("With stride 1 this gradient is a convolution of [dy](input), its filters turned by 180°."),
            mark("So [Winograd’s kernels](/winograd) compute it. Only the transform of the [filters](filter) is different: each thread turns its taps first."),
        ),
        {"rung": "winograd"} | DENSE,
        readable=("w", "own_g"),
        step=1,
        loop=(0, 6),
        pin="own_g:0",
        size="real",
        question=faster(
            mark("Your guess: is it faster than implicit GEMM at {real_shape}?"),
            "conv-dinput/implicit-gemm", "real",
            mark("It takes {real_time}. {real_against_implicit_gemm}"),
        ),
        nudge=mark("In Explore, the gradient of the filters has Winograd too: each transform is on its other side."),
    ),
    Chapter(
        mark("A tap is a sum over every position"),
        (
            mark("The filters need gradients too. A tap multiplied one [pixel](input) for each output position of each image."),
            mark("Its [gradient](output) is the sum of pixel times [gradient of the output](workspace) over all positions."),
            mark("At {real_shape} that is {real_terms} products for each of {real_taps} taps."),
        ),
        {"gradient": "filters"} | DENSE,
        step=10,
        pin="dw:4",
        size="real",
        nudge=mark("Point at a tap of the gradient: the pixels that it multiplied are outlined."),
    ),
    Chapter(
        mark("Split the sum over blocks"),
        (
            mark("As a matrix product, the gradient of the filters has few tiles: {real_tiles} at {real_shape}, for {real_sms} SMs."),
            mark("So the long sum is cut into {real_parts} parts, here {stage_parts}. Each block adds one part and stores it, and a second kernel adds the parts in order."),
        ),
        SPLIT | DENSE,
        readable=("parts_of", "total"),
        step=9,
        loop=(8, 13),
        size="real",
        question=faster(
            mark("Blocks could add their parts by atomics, without a second kernel. Your guess: is storing the parts faster?"),
            "conv-dweight/implicit-gemm-atomics", "real",
            mark("It takes {real_time}. {real_against_implicit_gemm_atomics} By im2col and one product it is {real_time_im2col_gemm}."),
        ),
    ),
    Chapter(
        mark("Transposed convolution"),
        (
            mark("The gradient of the input is also an operation of its own. A transposed convolution spreads each [pixel](input) over a window of a larger [output](output)."),
            mark("The kernels are the same, with other names: the stride is now the factor by which the image grows."),
            mark("Networks that draw images use it: {real_shape} is such a layer."),
        ),
        LARGER,
        readable=("dy", "dx"),
        step=13,
        size="real",
        question=faster(
            mark("Your guess: are its phases faster than one thread per output?"),
            "conv-transpose/direct", "real",
            mark("It takes {real_time}. {real_against_direct}"),
        ),
        nudge=mark("Next, [softmax](/softmax) reads rows, not windows."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
