"""The chapters of the lesson on Winograd."""

from __future__ import annotations

from kernels import records
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import positions
from kernels.conv.winograd_cpu import R
from kernels.i18n import mark
from kernels.ladders import find
from pages.conv.winograd.address import DERIVE, NESTED
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.conv.winograd.part import NONFUSED
from visuals.strip.facts import Evidences, Facts

BY_HAND = ("3", "4", "5", "6")
PRODUCTS = ("9", "16", "24", "36")
HAND = {"picture": "numbers", "filter": "custom", "taps": "1 2 3 4 5 6 7 8 9"}
DIRECT = "conv/direct"


def facts(evidences: Evidences) -> Facts:
    """Returns the multiplications of one tile, how often a pixel of a large image is read, the filters of a block, and the
    recorded errors at the real size over that of direct convolution."""
    found = {
        "filters": str(find("conv/winograd-2x2").default_tiles["BK"]),
        "filters_large": str(find("conv/winograd-4x4").default_tiles["BK"]),
        "by_hand": str(2 + R - 1),
        "products": str(positions(2)),
        "products_large": str(positions(4)),
        "reads": units.ratio(positions(2) / 4),
        "reads_large": units.ratio(positions(4) / 16),
    }
    if not (real := evidences.get("real")):
        return found
    errors = recorded_errors(real.shape)
    return found | {
        f"error_{m}": f"{units.ratio(errors[m] / errors[0])}×" for m in (2, 4, 6) if {0, m} <= errors.keys()
    }


def recorded_errors(s: ConvShape) -> dict[int, float]:
    """Returns the recorded relative L2 error against float64 at a shape, by m of F(m×m, 3×3); 0 is direct convolution."""
    steps, found = find(NONFUSED), {}
    for m in (0, 2, 4, 6):
        rung = steps if m else find(DIRECT)
        row = records.recorded(rung.name, s, rung.default_tiles | ({"M": m} if m else {}))
        if row:
            found[m] = row["error"]
    return found


def _errors_grow(evidences: Evidences) -> bool | None:
    """Returns whether the recorded errors grow with the tile; None if one is missing."""
    errors = recorded_errors(evidences["real"].shape) if "real" in evidences else {}
    return list(errors.values()) == sorted(errors.values()) if len(errors) == 4 else None


def _by_hand(evidences: Evidences) -> int | None:
    return BY_HAND.index(facts(evidences)["by_hand"])


def _products(evidences: Evidences) -> int | None:
    return PRODUCTS.index(facts(evidences)["products"])


CHAPTERS = (
    Chapter(
        mark("Six multiplications by hand"),
        (
            mark("Take a row of four inputs [d](input) and a filter of three taps [g](filter). It gives two outputs [y](output)."),
            mark("Each output is a sum of three products, so the direct way takes 2 · 3 = 6 multiplications. Winograd gets the same two outputs with fewer."),
        ),
        {"order": DERIVE, **HAND},
        step=1,
        loop=(0, 1),
        size="real",
        question=Question(
            mark("Your guess: how many multiplications are enough?"),
            BY_HAND,
            _by_hand,
            mark("{by_hand}. The next two chapters derive them by hand."),
        ),
    ),
    Chapter(
        mark("Taps as a polynomial"),
        (
            mark("Read the taps as a polynomial: g0 + g1·x + g2·x². Its product with a polynomial of two coefficients, one for each output, has four coefficients."),
            mark("The values at four points determine them: 0, 1, −1 and ∞ (the highest coefficient). Each point gives a column of [Aᵀ](output) and a row of [G](filter)."),
        ),
        {"order": DERIVE, **HAND},
        step=2,
        loop=(2, 10),
        size="real",
        nudge=mark("Compare: two points determine a line, and three points a parabola."),
    ),
    Chapter(
        mark("Four products, and back"),
        (
            mark("A polynomial that is 0 at three of the points selects the fourth. Its coefficients are a row of [Bᵀ](input)."),
            mark("Then u = Gg and v = Bᵀd are multiplied: one product for each point. Aᵀ adds these products to outputs."),
        ),
        {"order": DERIVE, **HAND},
        step=11,
        loop=(11, 20),
        size="real",
        nudge=mark("The kernels use exactly these matrices: the highlighted line is a row in their file."),
    ),
    Chapter(
        mark("Two dimensions: columns, then rows"),
        (
            mark("In two dimensions each matrix is applied to the columns first, then to the rows."),
            mark("The filter becomes U = Gg Gᵀ and the tile V = Bᵀd B. Their values are multiplied one by one."),
            mark("For 2 × 2 outputs the direct sum takes 4 · 9 = 36 products."),
        ),
        {"order": NESTED, **HAND},
        step=9,
        loop=(9, 24),
        size="real",
        question=Question(
            mark("How many products does Winograd take?"),
            PRODUCTS,
            _products,
            mark("{products}, one for each element of the 4 × 4 tile."),
        ),
    ),
    Chapter(
        mark("The kernel, tile by tile"),
        (
            mark("A first launch transforms all [filters](filter). Then a thread loads a tile of 4 × 4 pixels of the [input](input) and transforms it."),
            mark("The block adds the products of all channels, and a thread transforms the sums of a tile back to 2 × 2 outputs."),
            mark("The entries of Bᵀ and Aᵀ are 0, 1 and −1, so these transforms take additions only."),
        ),
        step=9,
        readable=("x", "d"),
        loop=(7, 39),
        size="real",
    ),
    Chapter(
        mark("Tiles overlap"),
        (
            mark("A tile is 4 × 4, but its outputs are only 2 × 2. So a pixel is read up to {reads} times."),
            mark("The purple numbers count the reads of each pixel."),
        ),
        step=10,
        readable=("R",),
        loop=(10, 33),
        size="real",
        question=faster(
            mark("Your guess: is it faster than implicit GEMM at {real_shape}?"),
            "conv/implicit-gemm", "real",
            mark("It takes {real_time}. {real_against_implicit_gemm}"),
        ),
    ),
    Chapter(
        mark("Larger tiles"),
        (
            mark("With 4 × 4 outputs a tile takes {products_large} products; the direct sum takes 144. A pixel of a large image is read {reads_large} times on average, not {reads}."),
            mark("But the transforms need more additions. A block has sums for only {filters_large} filters, not {filters}: the next {filters_large} transform the input again."),
        ),
        {"kernel": "4x4"},
        readable=("R",),
        step=16,
        size="real",
        question=faster(
            mark("Your guess: is it faster than with 2 × 2 outputs?"),
            "conv/winograd-2x2", "real",
            mark("It takes {real_time}. {real_against_winograd_2x2}"),
            of="conv/winograd-4x4",
        ),
        nudge=mark("In steps instead of one kernel, 4 × 4 tiles take {real_time_winograd_nonfused}: each step stores its results."),
    ),
    Chapter(
        mark("Why larger tiles lose digits"),
        (
            mark("Four outputs need six points, now also 2 and −2. Their powers reach 8, and the divisors in [G](filter) reach 24."),
            mark("Large terms of opposite sign then nearly cancel, and their rounding errors stay."),
            mark("Recorded errors at {real_shape}, compared with direct convolution: {error_2} with 2 × 2 outputs, {error_4} with 4 × 4, {error_6} with 6 × 6."),
        ),
        {"kernel": "4x4", "order": DERIVE, **HAND},
        step=14,
        loop=(11, 22),
        size="real",
        nudge=mark("The card “Rounding errors” in Explore measures them on this processor, in FP16 too."),
        holds=_errors_grow,
    ),
    Chapter(
        mark("Where next"),
        (
            mark("Winograd works for small filters, usually 3 × 3, with stride 1. Here it takes {real_time}. {real_against_implicit_gemm}"),
            mark("For large filters another transform pays: [FFT](/fft)."),
        ),
        step=59,
        size="real",
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
