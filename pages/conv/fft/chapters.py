"""The chapters of the lesson on the FFT."""

from __future__ import annotations

from kernels.i18n import mark
from pages.parts.chapters import Chapter, Story, faster

CHAPTERS = (
    Chapter(
        mark("An image is a sum of waves"),
        (
            mark("Any row of numbers can be written as a sum of waves. The Fourier transform finds how strong each wave is."),
            mark("In this form, sliding a [filter](filter) over the [input](input) becomes one multiplication for each wave."),
            mark("That is the whole idea. The rest is the way there and back."),
        ),
        step=28,
        size="real",
        nudge=mark("Press Play from here: each step multiplies one row of frequencies."),
    ),
    Chapter(
        mark("Make both the same size"),
        (
            mark("The [filter](filter) must be as large as the image. Its weights go into one corner, and the rest is zero."),
            mark("For a small filter that is a lot of zeros."),
        ),
        step=1,
        loop=(0, 1),
        size="real",
    ),
    Chapter(
        mark("Rows first, then columns"),
        (
            mark("The transform in two dimensions is done row by row, then column by column."),
            mark("A real row of 8 numbers gives 5 complex ones. The others are their mirror image and need not be stored."),
            mark("The fast algorithm (FFT) takes about n · log n operations for a row of n numbers, not n²."),
        ),
        step=2,
        loop=(2, 14),
        size="real",
    ),
    Chapter(
        mark("One product for each frequency"),
        (
            mark("Now the spectra have the same size. Y = X · conj(W), element by element."),
            mark("Each product here stands for one wave in the whole image. No window slides."),
        ),
        step=28,
        loop=(28, 35),
        size="real",
    ),
    Chapter(
        mark("And back"),
        (
            mark("The inverse transform turns the waves into pixels. Its last rows and columns are wrong: there the filter ran over the edge and came in on the other side."),
            mark("The kernel keeps only the pixels where the filter lies inside the image."),
        ),
        step=36,
        loop=(36, 49),
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
        nudge=mark("Of all memory in use, {stage_workspace} is workspace."),
    ),
    Chapter(
        mark("And for a large one?"),
        (
            mark("The cost of the FFT hardly depends on the size of the filter. The direct loop grows with its area."),
            mark("The strip now shows a large filter: {real_shape}."),
        ),
        step=49,
        size="real",
        question=faster(
            mark("Your guess: is it faster than the direct loop there?"),
            "conv/direct", "real",
            mark("It takes {real_time}. {real_against_direct} {real_against_implicit_gemm}"),
        ),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("FFT pays for large filters, if there is memory for the spectra. Here they take {real_workspace} of all memory in use."),
            mark("Four algorithms for one result. The lesson [choose](/choose) compares them all at one shape."),
        ),
        step=49,
        size="real",
    ),
)  # fmt: skip

STORY = Story(CHAPTERS)
