"""Tests of the FFT lesson without a browser: presets, both paddings, tilings, rules, invalid input, parts."""

from __future__ import annotations

from functools import partial

import pytest

from kernels import records
from kernels.conv import fft
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from pages.conv import address as conv_address
from pages.conv import controls
from pages.conv.fft import address, cards
from pages.parts.run_settings import CardRows, RunSettings
from pages.parts.tiles import SelectedRung
from tests.helpers.page_runner import components, heads, open_page, texts
from visuals import units
from visuals.conv.fft import notes as fft_notes
from visuals.conv.fft.scene import shown
from visuals.conv.inputs import Inputs

open_at = partial(open_page, "conv/fft/page.py")


def notes(at):
    return " ".join(html.value for html in at.get("html") if html.value.startswith('<p class="kt-note"'))


def at_shape(shape: ConvShape):
    return open_at(**conv_address.at_shape(conv_address.DEFAULT, shape))


def test_lesson_has_every_part():
    at = open_at()
    assert len(components(at)) == 1
    html = texts(at)
    assert address.REAL.key in address.CHIPS
    for title in (
        "FFT: a convolution becomes",
        "Spectra as pictures",
        "Wrap-around",
        "Time",
        "Memory",
        "Why",
        "Roofline",
        "Whole images or tiles",
        "As the filter grows",
        "Kernel",
    ):
        assert title in html, title
    assert html.count("data:image/png") == 10 + 3
    assert "20 of 36 outputs wrap around" in html and "<b>3×3</b> taps become <b>64</b> numbers" in html
    assert "10_fft_multiply.cu" in " ".join(tab.label for tab in at.tabs)
    # The FFT has no data matrix.
    assert "data matrix <b>" not in html and "direct convolution: <b>1,296</b> FLOPs" in html
    assert not notes(at)


@pytest.mark.parametrize("key", [*controls.CHIPS][::3])
def test_a_chip_opens(key):
    s = controls.PRESETS[key].shape
    at = at_shape(s)
    assert len(components(at)) == 1 and ("a smaller convolution" in notes(at)) == (shown(s) != s.with_(K=1))


@pytest.mark.parametrize("view", ["watch", "kernel", "run", "why"])
def test_each_view_shows_only_its_part(view):
    at = open_at(view=view, transform="16", room="too small")
    html = texts(at)
    assert bool(components(at)) == (view == "watch")
    assert bool(at.get("code")) == (view == "kernel")
    assert "kt-title" not in html and "Spectra as pictures" not in html


def test_url_sets_transform_size_and_padding():
    at = open_at(transform="16", room="too small", H="30", W="30", pad_h="1", pad_w="1", SPECTRA="8")
    assert "<b>4</b> transforms of <b>16×16</b>" in texts(at)  # side by side; with overlap there are 9
    assert "16 × 16, side by side" in texts(at)
    assert at.get("pills") or at.get("button_group")
    shape = ConvShape(1, 1, 30, 30, 2, 3, 3, pad=1)
    inputs = Inputs(shape, "digit", "sobel-x")
    tiles = {"FFT_TILE": 16, "SPECTRA": 8}
    in_16, whole = (SelectedRung(address.RUNG, tiles | {"FFT_TILE": tile}) for tile in (16, 0))
    small, reason = address.scene(inputs, in_16, "too small")
    assert "a smaller convolution" in reason and "right" in {t.name for t in small.tensors}
    assert small.key != address.scene(inputs, in_16, "pad")[0].key != address.scene(inputs, whole, "pad")[0].key


def test_sizes_beside_the_controls_are_those_on_the_stage():
    for room, size in (("pad", 20), ("too small", 18)):
        at = open_at(room=room, H="20", W="20")
        assert f"<b>1</b> transform of <b>{size}×{size}</b>" in texts(at)
        assert f"taps become <b>{size * size}</b> numbers" in texts(at)


def test_strides_and_dilation_are_described():
    at = open_at(u="2", v="2", pad_h="1", pad_w="1", dilation_h="2", dilation_w="2", H="20", W="20", size="stage")
    html = texts(at)
    assert "the stride discards <b>75 %</b>" in html and "then the stride discards 75 % of the pixels" in html


def test_filter_too_large_for_the_tile_is_reported():
    at = open_at(transform="16", H="60", W="60", R="5", S="5", dilation_h="5", dilation_w="5", size="stage")
    html = notes(at)
    assert "dilation_h*(R-1)+1 &lt;= FFT_TILE (16), got 21" in html and "a transform of the whole image" in html
    assert len(components(at)) == 1 and "16 cannot run: " in texts(at)


def test_workspace_over_the_limit_is_reported():
    s = ConvShape(1, 512, 224, 224, 512, 3, 3)
    at = at_shape(s)
    assert "workspace must not exceed" in notes(at) and "a smaller convolution" in notes(at)
    assert len(components(at)) == 1
    assert "Transforms of whole images cannot run this shape" in texts(at)


def test_groups_have_no_scene_but_a_rule():
    s = ConvShape(1, 4, 8, 8, 4, 3, 3, groups=2)
    scene, reason = address.scene(
        Inputs(s, "digit", "sobel-x"), SelectedRung(address.RUNG, address.RUNG.default_tiles), "pad"
    )
    assert scene is None and "groups must be 1, got 2" in reason


def test_largest_shape_of_the_page():
    largest = {name: conv_address.MAX[name] for name in ("N", "C", "H", "W", "K", "R", "S", "pad_h", "pad_w")}
    at = open_at(**largest, dilation_h="8", dilation_w="8", u="8", v="8")
    assert len(components(at)) == 1 and "must not exceed" in notes(at)


def test_invalid_parameters_are_named_and_escaped():
    at = open_at(transform="<script>", room="../x", SPECTRA="nan", H="inf", R="99", picture="<b>")
    assert "<script>" not in texts(at) and "H must be 1 to" in notes(at)
    assert "<b>1</b> transform of <b>8×8</b>" in texts(at)


def test_run_request_has_the_tiles_of_the_page():
    tiled_rung = "conv/fft", {"FFT_TILE": 16, "SPECTRA": 8}
    settings = RunSettings(
        address.LADDER, CONV_PRESETS["toy"].shape, "cpu", "cold", tuple(tiled_rung[1].items()), tiled_rung[0]
    )
    request = settings.request()
    assert request.tiles == {"conv/fft": tiled_rung[1]} and request.engine == "cpu"
    assert set(request.rungs) == {
        "conv/direct",
        "conv/implicit-gemm",
        "conv/fft",
        "conv/fft-tiled",
    }  # cuDNN needs a GPU


@pytest.mark.parametrize("stale", [False, True])
def test_a_tiling_shows_a_run_only_if_it_is_of_these_settings(monkeypatch, stale):
    ran = {"rung": "conv/fft", "tiles": {"FFT_TILE": 16, "SPECTRA": 32}, "median_ms": 1.0}
    monkeypatch.setattr(cards, "card_rows", lambda settings: CardRows({"conv/fft": ran}, "measured", stale))
    settings = RunSettings(address.LADDER, CONV_PRESETS["toy"].shape, "cpu", "cold", ())
    rows, kind = cards._rows(settings)
    assert (kind, ran in rows.values()) == (("recorded", False) if stale else ("measured", True))


def test_the_page_shows_the_share_of_each_step():
    """Uses a shipped recording that was timed step by step."""
    shape = CONV_PRESETS["resnet50-res2-3x3-n1"].shape
    html = texts(open_at(**conv_address.at_shape(conv_address.DEFAULT, shape), size="stage"))
    row = records.recorded("conv/fft", shape, fft.RUNGS[0].default_tiles)
    assert row and fft_notes.largest_part(row) and fft_notes.largest_part(row) in html
    for part, share in fft_notes.part_shares(row).items():
        assert f'<th scope="row">share of the time: {part}</th><td>{units.share(share)}</td>' in html
    assert units.bytes_(row["workspace_bytes"]) in html


# -- orders --------------------------------------------------------------------------------------------
def test_each_order_plays_its_scene():
    keys = {}
    for order in address.ORDERS:
        (stage_head,) = heads(open_at(view="watch", order=order))
        keys[order] = stage_head["meta"]["key"]
    assert keys[address.BUTTERFLIES].startswith("fft-butterflies ")
    assert " phases " in keys[address.PHASES] and " phases " not in keys[address.EXPLAINING]


def test_the_note_of_the_butterflies_says_that_they_are_no_kernel_of_cufft():
    (stage_head,) = heads(open_at(view="watch", order=address.BUTTERFLIES))
    assert "cuFFT’s kernels are not shown" in stage_head["meta"]["orderNote"]
    assert "cuFFT’s kernels are not shown" in address.ORDERS[address.BUTTERFLIES]
