"""Figures in the chapters of the convolution lessons, against rows and counts that are worked out here another way."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from kernels import records
from kernels.conv.presets import CONV_GRID, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.ladders import find
from pages._lessons import LESSONS
from tests.helpers.chapters import open_chapter
from tests.helpers.page_runner import strip
from visuals import units
from visuals.strip.facts import Evidences

RES3 = CONV_PRESETS["resnet50-res3-3x3-n32"].shape
LARGE = CONV_GRID["grid-11x11-c64-h56"].shape


@cache
def opened(path: str, n: int) -> tuple[Any, dict[str, Any], Evidences]:
    """Returns a chapter, from 1, as tests.helpers.chapters.open_chapter does."""
    return open_chapter(next(lesson for lesson in LESSONS if lesson.path == path), n - 1)


def shown(path: str, n: int) -> str:
    """Returns all that a chapter says, the answer to its question too."""
    panel = opened(path, n)[1]
    question = panel["question"]
    return " ".join([*panel["text"], *([question["text"], question["reveal"]] if question else []), panel["nudge"]])


def ms(rung: str, s: ConvShape) -> float:
    """Returns the cold recording of a rung at its usual tile sizes, by a search of all rows."""
    usual = find(rung).default_tiles
    rows = (r for r in records.recordings("conv") if r["rung"] == rung and r["shape"] == s.params())
    return next(r["median_ms"] for r in rows if r["tiles"] == usual and r["mode"] == "cold")


def right(path: str, n: int) -> str:
    """Returns the right answer of a chapter's question."""
    question = opened(path, n)[1]["question"]
    return question["answers"][question["right"]]


# -- FFT -------------------------------------------------------------------------------------------
def test_the_fft_lesson_ends_with_our_fastest_fft():
    _, _, evidences = opened("fft", 9)
    assert {evidences[size].rung.name for size in ("stage", "real")} == {"conv/fft-tiled"}
    assert ms("conv/fft-tiled", LARGE) < ms("conv/fft", LARGE)
    assert right("fft", 9) == "5 × 5"
    text = shown("fft", 9)
    assert units.time_(ms("conv/fft-tiled", LARGE)) in text
    assert units.time_(ms("conv/fft", LARGE)) not in text
    assert "1.12×" in text  # 120.2 over 107.1 µs in the last stage of ResNet-50


def test_earlier_chapters_of_the_fft_do_not_call_the_slower_one_our_fastest():
    bars = [bar for size in strip(opened("fft", 2)[0])["sizes"] for bar in size["time"]["bars"]]
    assert bars and not any(bar["tag"] == "our fastest" for bar in bars if bar["title"] == "FFT")


# -- direct, im2col, implicit GEMM -----------------------------------------------------------------
def test_direct_says_the_most_loads_of_a_pixel_in_whole_numbers():
    text = shown("direct", 4)
    assert "up to 18 times" in text and "up to 1,152 times" in text  # 3 · 3 taps · 2 filters, · 128 filters
    assert "3.7 billion" in shown("direct", 3)


def test_im2col_gives_the_extents_of_the_three_matrices():
    text = shown("im2col", 3)
    for extents in ("2×9", "9×36", "2×36"):  # 2 filters of 3 x 3 taps, 6 x 6 outputs
        assert extents in text


def test_im2col_names_the_faster_direct_kernel_and_the_faster_product():
    assert units.time_(ms("conv/direct-tiled", RES3)) in shown("im2col", 8)
    assert units.time_(ms("conv/im2col-cublas", RES3)) in shown("im2col", 9)


def test_implicit_gemm_is_compared_with_the_product_of_cublas():
    ratio = ms("conv/im2col-cublas", RES3) / ms("conv/implicit-gemm", RES3)
    assert f"{units.ratio(ratio)}× as fast as im2col + cuBLAS" in shown("implicit", 7)
    assert "predict" in shown("implicit", 5)


# -- Winograd --------------------------------------------------------------------------------------
def test_winograd_gives_no_answer_away():
    _, panel, _ = opened("winograd", 1)
    assert "four points" not in panel["next"]
    before = " ".join(opened("winograd", 4)[1]["text"])
    assert "16" not in before and "4 × 4" not in before


def test_winograd_says_which_filters_a_block_has():
    text = shown("winograd", 7)
    assert "only 32 filters, not 64" in text and "2.25 times on average, not 4" in text
    assert "registers" not in text  # 168 of a thread, with 2 × 2 outputs 243
    assert "up to 4 times" in shown("winograd", 6)


# -- choose ----------------------------------------------------------------------------------------
def test_choose_counts_the_filters_of_resnet_50():
    text = shown("choose", 2)
    assert "53" in text and "36" in text and "16" in text


@pytest.mark.parametrize("n", [5, 6])
def test_choose_has_one_workspace_of_the_fft(n):
    _, _, evidences = opened("choose", n)
    row = evidences["real"].rows["conv/fft-tiled"]
    assert units.bytes_(row["workspace_bytes"]) == "168 MB"
    if n == 5:
        assert evidences["stage"].rung.name == "conv/fft-tiled"
    else:
        assert "FFT in" in shown("choose", n) and "168 MB" in shown("choose", n)


def test_choose_explains_the_kernel_that_wins():
    _, _, evidences = opened("choose", 3)
    own = {name: row["median_ms"] for name, row in evidences["real"].rows.items() if "cudnn" not in name}
    assert min(own, key=own.get) == evidences["stage"].rung.name == "conv/winograd-nonfused"
    text = shown("choose", 3)
    assert "36 multiplications" in text and "needs 144" in text
    assert f"{units.ratio(own['conv/implicit-gemm'] / min(own.values()))}×" in text


@pytest.mark.parametrize(("n", "taps"), [(4, 1), (5, 11), (6, 11), (7, 5)])
def test_choose_names_the_filter_on_the_stage_where_it_is_another(n, taps):
    _, _, evidences = opened("choose", n)
    assert evidences["real"].shape.R == taps != evidences["stage"].shape.R == 3
    assert "3×3" in shown("choose", n)


# -- backward --------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [4, 5])
def test_a_chapter_on_a_stride_is_measured_with_one(n):
    _, _, evidences = opened("backward", n)
    assert evidences["stage"].shape.stride == evidences["real"].shape.stride == (2, 2)
    product = evidences["real"].rows["conv-dinput/gemm-gather"]["parts_ms"]["gemm_transposed"]
    assert units.time_(product) in shown("backward", n)
