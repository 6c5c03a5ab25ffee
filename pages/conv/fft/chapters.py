"""The chapters of the lesson on the FFT."""

from __future__ import annotations

from kernels.i18n import mark
from pages.conv.fft.address import BUTTERFLIES, WAVES
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.conv.fft import butterfly, filter_sizes
from visuals.strip.facts import Evidences, Facts

SMALL = {"H": "4", "W": "4", "picture": "numbers"}  # its numbers can be read
SIZES = (3, 5, 7, 11)  # of filters
ANSWERS = tuple(f"{taps} × {taps}" for taps in SIZES)


def facts(evidences: Evidences) -> Facts:
    """Returns the butterflies of 8 numbers, and how our FFT compares with the fastest kernel without an FFT."""
    found = {"butterflies": str(len(list(butterfly.butterflies())))}
    if not (real := evidences.get("real")) or not (pair := filter_sizes.pair_at(real.shape)):
        return found
    first, (_, ratio) = filter_sizes.wins_from(real.shape), filter_sizes.best_network_layer()
    return found | {
        "other_time": units.time_(pair[1]["median_ms"]),
        "first": f"{first} × {first}" if first else "",
        "network": f"{units.ratio(ratio)}×",
    }


def _first(evidences: Evidences) -> int | None:
    first = filter_sizes.wins_from(evidences["real"].shape) if "real" in evidences else None
    return SIZES.index(first) if first in SIZES else None


def _only_large_filters_win(evidences: Evidences) -> bool | None:
    """Returns whether the FFT wins at the real size, but in no layer of a network; None without recordings."""
    if "real" not in evidences or not (pair := filter_sizes.pair_at(evidences["real"].shape)):
        return None
    return filter_sizes.is_faster(pair) and filter_sizes.best_network_layer()[1] > 1


CHAPTERS = (
    Chapter(
        mark("An image is a sum of waves"),
        (
            mark("Any row of numbers can be written as a sum of waves. The Fourier transform finds how strong each wave is."),
            mark("In this form, sliding a [filter](filter) over the [input](input) becomes one multiplication for each wave. The rest is the way there and back."),
        ),
        {"order": WAVES, "picture": "numbers"},
        step=15,
        loop=(0, 26),
        size="real",
        nudge=mark("Press Play: the waves of the filter follow, then one product for each wave."),
    ),
    Chapter(
        mark("Make both the same size"),
        (
            mark("Both transforms will be multiplied number by number. So the [filter](filter) must be as large as the image."),
            mark("Its weights go into one corner, and the rest is zero. For a small filter that is a lot of zeros."),
        ),
        SMALL,
        readable=("x", "xp", "wp"),
        step=1,
        loop=(0, 1),
        size="real",
    ),
    Chapter(
        mark("The transform: halves of halves"),
        (
            mark("Each number X[k] of the transform is a sum of 8 products: 8 · 8 = 64 in all."),
            mark("The fast transform (FFT) splits the row into even and odd positions, down to single numbers."),
            mark("A butterfly turns a and b into a + ωb and a − ωb. {butterflies} butterflies, in three stages, put the row together again."),
        ),
        {"order": BUTTERFLIES, "picture": "numbers"},
        step=13,
        loop=(0, 19),
        size="real",
        nudge=mark("Click a number after a stage to see its sum: this is the idea, not cuFFT’s own kernels."),
    ),
    Chapter(
        mark("Magnitude and phase"),
        (
            mark("Each X[k] is a complex number, a pair (real, imaginary). Think of it as an arrow."),
            mark("Its length, the magnitude, says how strong a wave is. Its angle, the phase, says where the wave begins."),
        ),
        {"order": BUTTERFLIES, "picture": "numbers"},
        step=21,
        loop=(20, 24),
        size="real",
        nudge=mark("The twiddle factor ω of a butterfly has length 1, so it only turns an arrow."),
    ),
    Chapter(
        mark("Rows first, then columns"),
        (
            mark("The transform in two dimensions is done row by row, then column by column."),
            mark("A real row of 4 numbers gives 3 complex ones. The stage shows their magnitudes."),
        ),
        SMALL,
        readable=("xp", "X"),
        step=2,
        loop=(2, 8),
        size="real",
    ),
    Chapter(
        mark("One product for each frequency"),
        (
            mark("Now the spectra have the same size: Y = X · conj(W), element by element."),
            mark("The magnitudes are multiplied. The phase of W is subtracted from the phase of X."),
            mark("Each product belongs to one wave of the whole image: no window slides."),
        ),
        SMALL,
        readable=("X", "W", "Y"),
        step=16,
        loop=(16, 19),
        size="real",
        nudge=mark("Point at an element of |Y| to see its product, or choose the order “phases” in Explore to see the angles."),
    ),
    Chapter(
        mark("And back"),
        (
            mark("The inverse transform turns the waves into pixels. Its last rows and columns are wrong: there the filter ran over the edge and came in on the other side."),
            mark("The kernel keeps only the pixels where the filter is inside the image."),
        ),
        SMALL,
        readable=("d", "y"),
        step=20,
        loop=(20, 25),
        size="real",
    ),
    Chapter(
        mark("Does it pay for a small filter?"),
        (
            mark("A 3 × 3 filter on this image needs few products anyway. The FFT needs several launches and a workspace."),
        ),
        step=49,
        question=faster(
            mark("Your guess: is it faster than the direct loop here?"),
            "conv/direct", "stage",
            mark("It takes {stage_time}. {stage_against_direct}"),
        ),
        nudge=mark("In Explore, “FFT in tiles” cuts the image into small tiles whose transforms stay in registers."),
    ),
    Chapter(
        mark("From which filter size on?"),
        (
            mark("The cost of the FFT hardly depends on the size of the filter. The direct loop grows with its area."),
            mark("At {real_shape} the FFT takes {real_time}. The fastest recorded kernel without an FFT takes {other_time}."),
        ),
        step=49,
        size="real",
        question=Question(
            mark("Your guess: from which filter size on is the FFT the fastest here?"),
            ANSWERS,
            _first,
            mark("From {first} on. In layers of LeNet, ResNet-50 and VGG-16 it takes at least {network} the time of the fastest kernel."),
        ),
        nudge=mark("Next, [choose](/choose) compares all kernels."),
        holds=_only_large_filters_win,
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
