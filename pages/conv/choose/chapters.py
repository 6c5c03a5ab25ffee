"""The chapters of the lesson on choosing: which algorithm is the fastest depends on the layer."""

from __future__ import annotations

from kernels.conv.networks import NETWORKS
from kernels.conv.presets import CONV_GRID, CONV_PRESETS
from kernels.conv.winograd import positions
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
from visuals.strip.facts import Evidences, Facts

RESNET = NETWORKS["resnet50"]
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
    if found is None:
        return None
    ways = {WAY_OF[rung.family] for rung, row in _ours(evidences["real"]) if same_time(row, found[1])}
    return ways.pop() if len(ways) == 1 else None


def _workspace(evidences: Evidences) -> dict[str, tuple[int, Rung]]:
    """Returns the least workspace in bytes of each family at the real size, and the kernel that has it."""
    found: dict[str, tuple[int, Rung]] = {}
    for rung, row in _ours(evidences["real"]) if "real" in evidences else ():
        used = row[f"{WORKSPACE}_bytes"]
        if rung.family not in found or used < found[rung.family][0]:
            found[rung.family] = used, rung
    return found


def _hungriest(evidences: Evidences) -> int | None:
    used = _workspace(evidences)
    return HUNGRY.index(max(used, key=lambda family: used[family][0])) if used else None


def _count(taps: int) -> int:
    """Returns how many convolutions of ResNet-50 have filters of taps x taps."""
    return sum(layer.count for layer in RESNET.layers if layer.shape.R == layer.shape.S == taps)


def facts(evidences: Evidences) -> Facts:
    """Returns the fastest kernel at the real size and its time, the kernel of each family with the least workspace, the
    filters on the stage and at the real size, and how many convolutions of ResNet-50 have which filters."""
    found = {"layers": str(RESNET.convolutions)} | {f"layers_{taps}": str(_count(taps)) for taps in (1, 3)}
    for size, evidence in evidences.items():
        found[f"{size}_taps"] = f"{evidence.shape.R}×{evidence.shape.S}"
        found[f"{size}_macs"] = units.whole(evidence.shape.macs)
    for family, (count, rung) in _workspace(evidences).items():
        found |= {f"workspace_{family}": units.bytes_(count), f"least_{family}": tr(rung.title)}
    if fastest := _fastest(evidences):
        rung, row = fastest
        found |= {"fastest": tr(rung.title), "fastest_time": units.time_(row["median_ms"])}
        if m := row["tiles"].get("M"):
            found |= {"m": str(m), "products": str(positions(m)), "direct_products": str(9 * m * m)}
    return found


def _stage_is_fastest(evidences: Evidences) -> bool | None:
    """Returns whether the kernel on the stage is our fastest at the real size; None without recordings."""
    found = _fastest(evidences)
    return found[0] is evidences["stage"].rung if found else None


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
        nudge=mark("Each chapter puts one way on the stage, and the strip compares it at a layer of a real network."),
    ),
    Chapter(
        mark("A filter of 3×3"),
        (
            mark(
                "Of the {layers} convolutions of ResNet-50, {layers_1} have filters of 1×1 and {layers_3} of 3×3. This one is {real_shape}."
            ),
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
                "For a tile of {m} × {m} [outputs](output), {fastest} needs {products} multiplications; direct needs {direct_products}. Additions take their place."
            ),
            mark("{real_against_implicit_gemm} Winograd needs stride 1 and a small filter."),
        ),
        _layer("resnet50-res3-3x3-n32", "winograd-steps"),
        step=3,
        size="real",
        holds=_stage_is_fastest,
        nudge=mark("[Winograd](/winograd) shows where these products come from, for a smaller tile."),
    ),
    Chapter(
        mark("A filter of one pixel"),
        (
            mark(
                "A filter of 1×1 mixes channels only. Each [output](output) pixel needs one [input](input) pixel of every channel."
            ),
            mark("So the data matrix is the input as it is. The stage shows the same kernel with {stage_taps} taps."),
        ),
        _layer("resnet50-res2-1x1", "implicit"),
        step=2,
        size="real",
        question=_which(
            mark("Your guess: which way is the fastest now?"),
            mark("The fastest is {fastest}, in {fastest_time}. Winograd and the FFT have nothing to save here."),
        ),
    ),
    Chapter(
        mark("A large filter"),
        (
            mark(
                "With 11×11 taps each [output](output) pixel takes 121 products per channel. A larger filter adds little work to the FFT."
            ),
            mark("It pays for transforms instead. The layer is {real_shape}; the stage shows {stage_taps} taps."),
        ),
        _layer("grid-11x11-c64-h56", "fft"),
        step=12,
        size="real",
        question=faster(
            mark("Your guess: is FFT in tiles faster than implicit GEMM here?"),
            "conv/implicit-gemm",
            "real",
            mark("It takes {real_time}. {real_against_implicit_gemm}"),
        ),
    ),
    Chapter(
        mark("Memory is a price, too"),
        (
            mark(
                "Same layer, and again {stage_taps} taps on the stage. What is kept in between must fit into the GPU."
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
                "im2col needs {workspace_im2col}, {least_fft} {workspace_fft}. Each input pixel is copied into up to 121 columns."
            ),
            hides=("memory",),
        ),
    ),
    Chapter(
        mark("A small layer"),
        (
            mark(
                "The first layer of LeNet ({real_shape}) has {real_macs} multiply-adds, too few for a GPU. The stage shows a toy with {stage_taps} taps."
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
            mark("No way is the best everywhere. The filter’s size, the channels, the image and the batch decide."),
            mark(
                "Libraries choose by rules or by trying. In Explore you do the same: set your layer, guess, and see the race."
            ),
        ),
        _layer("resnet50-res3-3x3-n32", "winograd"),
        step=9,
        size="real",
        nudge=mark("Next, [backward](/backward) computes the gradients of a convolution."),
    ),
)
STORY = Story(CHAPTERS, facts)
