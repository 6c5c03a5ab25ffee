"""The chapters of the lesson on Winograd."""

from __future__ import annotations

from kernels.conv.winograd import positions
from kernels.i18n import mark
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals.charts import units
from visuals.strip.facts import Evidences, Facts

PRODUCTS = ("9", "16", "24", "36")


def facts(evidences: Evidences) -> Facts:
    """Returns the multiplications of one tile of 2 × 2 and of 4 × 4 outputs, and how often a pixel is read."""
    return {
        "products": str(positions(2)),
        "products_large": str(positions(4)),
        "reads": units.ratio(positions(2) / 4),
        "reads_large": units.ratio(positions(4) / 16),
    }


def _products(evidences: Evidences) -> int | None:
    return PRODUCTS.index(facts(evidences)["products"])


CHAPTERS = (
    Chapter(
        mark("Four products instead of six"),
        (
            mark("Take a row d0, d1, d2, d3 and a filter of three weights g0, g1, g2. Two outputs need 2 · 3 = 6 products."),
            mark("Winograd needs four: m1 = (d0 − d2)·g0, m2 = (d1 + d2)·(g0 + g1 + g2)/2, m3 = (d2 − d1)·(g0 − g1 + g2)/2, m4 = (d1 − d3)·g2."),
            mark("The outputs are m1 + m2 + m3 and m2 − m3 − m4. Try it with small numbers."),
        ),
        step=2,
        size="real",
        nudge=mark("The card “The matrices, derived” below shows where these sums come from."),
    ),
    Chapter(
        mark("First the filter"),
        (
            mark("In two dimensions the same sums are matrices. G turns the 3 × 3 [filter](filter) g into a 4 × 4 block U = G g Gᵀ."),
            mark("This is done once for each filter, before any image is read."),
        ),
        step=0,
        loop=(0, 1),
        size="real",
    ),
    Chapter(
        mark("Then a tile of the image"),
        (
            mark("Each thread takes a tile of 4 × 4 pixels of the [input](input), for 2 × 2 outputs."),
            mark("V = Bᵀ d B. The entries of B are 0, 1 and −1, so this takes additions only."),
        ),
        step=2,
        loop=(2, 3),
        size="real",
    ),
    Chapter(
        mark("Multiply, element by element"),
        (
            mark("Now U and V have the same size. Each element of U is multiplied by the one of V at the same place."),
            mark("For 2 × 2 outputs the direct sum takes 4 · 9 = 36 products."),
        ),
        step=4,
        size="real",
        question=Question(
            mark("How many products does Winograd take, for one filter and one channel?"),
            PRODUCTS,
            _products,
            mark("{products}, one for each element of the 4 × 4 tile."),
        ),
    ),
    Chapter(
        mark("And back"),
        (
            mark("Products of all channels are added first. Then Aᵀ Z A gives the 2 × 2 [outputs](output), again with additions only."),
            mark("So products were traded for additions, and for tiles that overlap."),
        ),
        step=5,
        loop=(2, 5),
        size="real",
    ),
    Chapter(
        mark("Tiles overlap"),
        (
            mark("A tile is 4 × 4, but its outputs are only 2 × 2. So each pixel is read {reads} times."),
            mark("The purple numbers count the reads of each pixel."),
        ),
        step=6,
        loop=(6, 16),
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
            mark("With 4 × 4 outputs a tile takes {products_large} products where the direct sum takes 144. A pixel is read only {reads_large} times."),
            mark("But the transforms need more additions, more registers, and factors such as 1/24: results lose digits."),
        ),
        {"kernel": "4x4"},
        step=4,
        size="real",
        question=faster(
            mark("Your guess: is it faster than with 2 × 2 outputs?"),
            "conv/winograd-2x2", "real",
            mark("It takes {real_time}. {real_against_winograd_2x2}"),
        ),
        nudge=mark("The card “Rounding errors” below shows the digits that are lost."),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("Winograd works for small filters, usually 3 × 3, with stride 1. {real_against_implicit_gemm}"),
            mark("For large filters another transform pays: [FFT](/fft)."),
        ),
        step=16,
        size="real",
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
