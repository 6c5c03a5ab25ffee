"""The chapters of the lesson on choosing: which algorithm is the fastest depends on the layer."""

from __future__ import annotations

from kernels.conv.presets import CONV_GRID, CONV_PRESETS
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import WORKSPACE
from kernels.model.rung import Rung
from kernels.records.statistics import same_time
from pages.conv.choose import address
from pages.conv.choose.stage import WATCH
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.conv.choose.families import FAMILIES
from visuals.strip.evidence import Evidence, Row
from visuals.strip.facts import Evidences, Facts, faster_than

OURS = tuple(key for key in FAMILIES if key != "cudnn")
# The answers, and which of them the families of OURS are.
WAYS = (mark("Direct"), mark("im2col or implicit GEMM"), "Winograd", "FFT")
WAY_OF = {"direct": 0, "im2col": 1, "implicit": 1, "winograd": 2, "fft": 3}
HUNGRY = ("im2col", "fft", "winograd", "implicit")
NEEDS_MOST = ("im2col", "FFT", "Winograd", mark("Implicit GEMM"))


def _ours(evidence: Evidence) -> list[tuple[Rung, Row]]:
    rungs = [(find(name), row) for name, row in evidence.rows.items()]
    return [(rung, row) for rung, row in rungs if rung.family in OURS]


def _fastest(evidences: Evidences) -> tuple[Rung, Row] | None:
    """Returns the fastest kernel at the real size without those of cuDNN, and its row."""
    if "real" not in evidences:
        return None
    return min(_ours(evidences["real"]), key=lambda found: found[1]["median_ms"], default=None)


def _fastest_way(evidences: Evidences) -> int | None:
    """Returns the way of the fastest kernel; None if another way takes the same time."""
    found = _fastest(evidences)
    timed = _ours(evidences["real"]) if found else ()
    ways = {WAY_OF[rung.family] for rung, row in timed if same_time(row, found[1])}
    return ways.pop() if len(ways) == 1 else None


def _workspace(evidences: Evidences) -> dict[str, int]:
    """Returns the least workspace in bytes of each family at the real size."""
    found: dict[str, int] = {}
    for rung, row in _ours(evidences["real"]) if "real" in evidences else ():
        used = row[f"{WORKSPACE}_bytes"]
        found[rung.family] = min(used, found.get(rung.family, used))
    return found


def _hungriest(evidences: Evidences) -> int | None:
    used = _workspace(evidences)
    return HUNGRY.index(max(used, key=used.__getitem__)) if used else None


def facts(evidences: Evidences) -> Facts:
    """Returns the fastest kernel at the real size and its time, and the workspace of each family."""
    used = _workspace(evidences)
    found = {f"workspace_{family}": units.bytes_(count) for family, count in used.items()}
    if fastest := _fastest(evidences):
        rung, row = fastest
        found |= {"fastest": tr(rung.title), "fastest_time": units.time_(row["median_ms"])}
    return found


def _layer(key: str, watch: str) -> dict[str, str]:
    """Returns the parameters of a preset as the real shape, with an algorithm on the stage."""
    shape = (CONV_PRESETS | CONV_GRID)[key].shape
    return address.at_shape(shape) | {WATCH: watch}


def _which(text: str, reveal: str) -> Question:
    ours = tuple(rung.name for rung in address.LADDER.rungs if rung.family in OURS)
    return Question(text, WAYS, _fastest_way, reveal, ours)


CHAPTERS = (
    Chapter(
        mark("One result, five ways"),
        (
            mark("You have met five ways to compute a convolution. All give the same [output](output)."),
            mark("Some do less work, some do the same work at a higher rate, and some need extra memory."),
            mark("Direct is the yardstick: {real_time} at {real_shape}."),
        ),
        _layer("resnet50-res3-3x3-n32", "direct"),
        size="real",
        nudge=mark(
            "Each chapter puts one way on the stage, and the strip compares it at a layer of a real network."
        ),
    ),
    Chapter(
        mark("A filter of 3×3"),
        (
            mark("Most layers of ResNet-50 have filters of 3×3. This one is {real_shape}."),
            mark(
                "Its many channels make one large product. Implicit GEMM, on the stage, computes it without a stored matrix."
            ),
        ),
        _layer("resnet50-res3-3x3-n32", "implicit"),
        step=2,
        size="real",
        question=_which(
            mark("Your guess: which way is the fastest at this layer?"),
            mark("The fastest is {fastest}, in {fastest_time}. Implicit GEMM takes {real_time}."),
        ),
    ),
    Chapter(
        mark("What decided it"),
        (
            mark(
                "Winograd needs 16 multiplications for 4 [outputs](output); direct needs 36. Additions take their place."
            ),
            mark("{real_against_implicit_gemm} Winograd needs stride 1 and a small filter."),
        ),
        _layer("resnet50-res3-3x3-n32", "winograd"),
        step=3,
        size="real",
        holds=faster_than("real", "conv/implicit-gemm"),
        nudge=mark("[Winograd](/winograd) shows where the 16 come from."),
    ),
    Chapter(
        mark("A filter of one pixel"),
        (
            mark(
                "A filter of 1×1 mixes channels only. Each [output](output) pixel needs one [input](input) pixel of every channel."
            ),
            mark("So the data matrix is the input as it is. This is a layer of ResNet-50."),
        ),
        _layer("resnet50-res2-1x1", "implicit"),
        step=2,
        size="real",
        question=_which(
            mark("Your guess: which way is the fastest now?"),
            mark(
                "The fastest is {fastest}, in {fastest_time}. Winograd and the FFT have nothing to save here."
            ),
        ),
    ),
    Chapter(
        mark("A large filter"),
        (
            mark(
                "With 11×11 taps each [output](output) pixel takes 121 products per channel. The FFT’s work hardly grows with the filter."
            ),
            mark("It pays for transforms instead. The layer is {real_shape}."),
        ),
        _layer("grid-11x11-c64-h56", "fft"),
        step=4,
        size="real",
        question=faster(
            mark("Your guess: is the FFT faster than implicit GEMM here?"),
            "conv/implicit-gemm",
            "real",
            mark("The FFT takes {real_time}. {real_against_implicit_gemm}"),
        ),
    ),
    Chapter(
        mark("Memory is a price, too"),
        (
            mark(
                "Same layer. Here speed is not the only question: what is kept in between must fit into the GPU."
            ),
            mark("im2col stores its data matrix, the FFT its spectra. Implicit GEMM stores nothing."),
        ),
        _layer("grid-11x11-c64-h56", "im2col"),
        step=6,
        size="real",
        question=Question(
            mark("Your guess: which way needs the most extra memory?"),
            NEEDS_MOST,
            _hungriest,
            mark(
                "im2col needs {workspace_im2col}, the FFT {workspace_fft}. Each input pixel is copied into up to 121 columns."
            ),
        ),
    ),
    Chapter(
        mark("A small layer"),
        (
            mark(
                "The first layer of LeNet ({real_shape}) is tiny. All its work is done before a GPU is busy."
            ),
            mark("Extra steps mean extra launches, and a launch takes microseconds."),
        ),
        _layer("lenet-conv1", "direct"),
        size="real",
        question=_which(
            mark("Your guess: which way is the fastest now?"),
            mark("The fastest is {fastest}, in {fastest_time}. The launch alone takes {real_launch} of it."),
        ),
    ),
    Chapter(
        mark("So measure"),
        (
            mark(
                "No way is the best everywhere. The filter’s size, the channels, the image and the batch decide."
            ),
            mark(
                "Libraries choose by rules or by trying. In Explore you do the same: set your layer, guess, and see the race."
            ),
        ),
        _layer("resnet50-res3-3x3-n32", "winograd"),
        step=3,
        size="real",
        nudge=mark("Next, [backward](/backward) computes the gradients of a convolution."),
    ),
)
STORY = Story(CHAPTERS, facts)
