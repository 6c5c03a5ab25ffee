"""The chapters of the lesson on the FFT."""

from __future__ import annotations

from kernels.i18n import mark
from pages.conv.fft.address import BUTTERFLIES, WAVES
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.charts.ladder_notes import recorded_at
from visuals.conv.fft import butterfly, filter_sizes
from visuals.conv.fft.charts import with_taps
from visuals.strip.evidence import Evidence
from visuals.strip.facts import Evidences, Facts, faster_than

SMALL = {"H": "4", "W": "4", "picture": "numbers"}  # its numbers can be read
SIZES = (3, 5, 7, 11)  # of filters
DIRECT, TILED = "conv/direct", {"rung": "fft-tiled"}
ANSWERS = tuple(f"{taps} × {taps}" for taps in SIZES)


def facts(evidences: Evidences) -> Facts:
    """Returns the butterflies of 8 numbers, the launches of the kernel on the stage, and how our fastest FFT compares with
    the fastest kernel without an FFT."""
    stage = evidences["stage"]
    launches = len(stage.rung.build(stage.shape, {**stage.rung.default_tiles, **stage.tiles}).steps)
    found = {"butterflies": str(len(list(butterfly.butterflies()))), "launches": str(launches)}
    if not (real := evidences.get("real")) or not (pair := filter_sizes.pair_at(real.shape)):
        return found
    first, (_, ratio) = filter_sizes.wins_from(real.shape), filter_sizes.best_network_layer()
    return (
        found
        | _growth(real)
        | {
            "other_time": units.time_(pair[1]["median_ms"]),
            "first": f"{first} × {first}" if first else "",
            "network": f"{units.ratio(ratio)}×",
        }
    )


def _growth(real: Evidence) -> Facts:
    """Returns how many times as long the kernel on the stage and the direct loop take at the real size as with the smallest
    of SIZES; nothing without their recordings."""
    small = with_taps(real.shape, SIZES[0])
    found = {}
    for name, rung in (("growth", real.rung.name), ("growth_direct", DIRECT)):
        before, after = (recorded_at(s, (rung,)).get(rung) for s in (small, real.shape))
        if before and after:
            found[name] = f"{units.ratio(after['median_ms'] / before['median_ms'])}×"
    return found


def _first(evidences: Evidences) -> int | None:
    first = filter_sizes.wins_from(evidences["real"].shape) if "real" in evidences else None
    return SIZES.index(first) if first in SIZES else None


def _only_large_filters_win(evidences: Evidences) -> bool | None:
    """Returns whether the FFT on the stage is our fastest and wins at the real size, but in no layer of a network; None
    without recordings."""
    if "real" not in evidences or not (pair := filter_sizes.pair_at(evidences["real"].shape)):
        return None
    is_ours = pair[0]["rung"] == evidences["real"].rung.name
    return is_ours and filter_sizes.is_faster(pair) and filter_sizes.best_network_layer()[1] > 1


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
            mark("FFT in tiles transforms two real rows as one complex row: a row of 8 numbers becomes 4 pairs."),
            mark("Then it transforms the columns and stores the [spectrum](input) V. The stage shows its magnitudes."),
        ),
        {**TILED, "picture": "numbers"},
        readable=("xt", "V"),
        step=9,
        loop=(7, 15),
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
        step=4,
        loop=(4, 5),
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
        step=6,
        loop=(6, 8),
        size="real",
    ),
    Chapter(
        mark("Does it pay for a small filter?"),
        (
            mark("Our fastest version, FFT in tiles, cuts a large image into small tiles. Their transforms stay in registers."),
            mark("A 3 × 3 filter on this image needs few products anyway. FFT in tiles needs {launches} launches and a workspace."),
        ),
        TILED,
        step=12,
        question=faster(
            mark("Your guess: is FFT in tiles faster than the direct loop here?"),
            DIRECT, "stage",
            mark("It takes {stage_time}. {stage_against_direct}"),
        ),
        holds=faster_than("real", "conv/fft"),
    ),
    Chapter(
        mark("From which filter size on?"),
        (
            mark("A larger filter adds little work to the FFT. With 11 × 11 instead of 3 × 3 taps, FFT in tiles takes {growth} as long, and direct {growth_direct} as long."),
            mark("At {real_shape} FFT in tiles takes {real_time}. The fastest recorded kernel without an FFT takes {other_time}."),
        ),
        TILED,
        step=12,
        size="real",
        question=Question(
            mark("Your guess: from which filter size on is FFT in tiles faster than all kernels without an FFT?"),
            ANSWERS,
            _first,
            mark("From {first} on. In layers of LeNet, ResNet-50 and VGG-16 our fastest FFT takes at least {network} the time of the fastest other kernel."),
        ),
        nudge=mark("Next, [choose](/choose) compares all kernels."),
        holds=_only_large_filters_win,
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
