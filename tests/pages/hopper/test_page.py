"""Tests of the lesson on Hopper without a browser: every rung in every picture, the card of its times, refusals."""

import json

import pytest

from kernels import records
from kernels.gemm import hopper
from kernels.gemm.presets import GEMM_PRESETS
from pages.hopper import address, controls
from pages.hopper.chapters import STORY
from tests.helpers.page_runner import heads, links, open_page, stages, strip, texts

H200 = "NVIDIA H200"
SMALL = GEMM_PRESETS["square-64-fp16"].shape


def open_at(**params):
    return open_page("hopper/page.py", view="explore", **params)


def recorded_on(at) -> str:
    return json.dumps(strip(at), ensure_ascii=False)


def test_a_page_shows_every_part_at_a_real_size():
    shape = GEMM_PRESETS["square-4096-bf16"].shape
    at = open_at(**address.ADDRESS.at_shape(address.ADDRESS.read({})[0], shape))
    html = texts(at)
    for part in ("Time", "Memory", "Roofline", "Why", "FLOP/s by kernel", "Kernel"):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert "kt-note" not in html and at.code and strip(at)["run"]["label"] == "Run here"


@pytest.mark.parametrize("key", [key for key in controls.CHIPS if key.startswith("gpt2")])
def test_a_preset_of_a_network_opens_its_recorded_product(key):
    """Its bias is C0, so beta is 1. Without beta no time is recorded, and none at tile sizes for large products."""
    start = address.ADDRESS.read({"rung": "wgmma-turns"})[0]
    shape = GEMM_PRESETS[key].shape
    query, notes = address.ADDRESS.read(address.ADDRESS.at_shape(start, shape))
    assert not notes and query.shape == shape and query.shape.beta == 1 and not query.broken
    row = records.recorded(query.rung.name, shape, query.tiles)
    assert row["median_ms"] < 1.1 * records.recorded(address.LIBRARY, shape, {})["median_ms"]


@pytest.mark.parametrize("order", address.ORDERS)
@pytest.mark.parametrize("rung", address.ADDRESS.rungs)
def test_every_rung_has_every_picture(rung, order):
    query, notes = address.ADDRESS.read({"rung": rung})
    scene, _ = address.scene(query.shape, query.rung.name, tuple(query.tiles.items()), order)
    assert not notes and scene.steps > 1 and f"gemm/{rung} " in scene.key


def test_times_are_of_the_card_that_has_the_kernels_unless_the_url_names_another():
    assert records.covering(*address.OWN).device == H200
    usual = open_at()
    assert "recorded · H200" in recorded_on(usual)
    assert not any("card" in params for params in links(usual).values())  # other pages keep their own
    other = open_at(card="nvidia-h100-80gb-hbm3", rung="wgmma")
    assert "recorded · H100" in recorded_on(other)


def test_the_card_of_this_page_is_not_that_of_the_next_one():
    at = open_at()
    at.switch_page("gemm/page.py")
    at.query_params["M"] = "4096"
    at.query_params["N"] = "4096"
    at.query_params["K"] = "4096"
    at.run()
    assert "recorded · H200" in recorded_on(at)


def test_what_cannot_be_shown_is_refused_with_its_rule():
    at = open_at(N=12)
    assert "N % 8 == 0, got 12 % 8" in texts(at) and not stages(at)
    at = open_at(order="accumulator", M=16, warp=2)
    assert "Warp 2 holds rows 32 to 47, and C has 16." in texts(at) and not stages(at)


def test_a_picture_has_its_own_control():
    for order, name in (("swizzle", controls.SWIZZLE), ("accumulator", controls.WARP)):
        names = {group.proto.id.rpartition("-")[2] for group in open_at(order=order).get("button_group")}
        assert name in names and len({controls.SWIZZLE, controls.WARP} & names) == 1


def test_both_modes_and_all_warps_are_different_pictures():
    keys = {stages(open_at(swizzle=mode))[0] for mode in address.MODES}
    assert len(keys) == len(address.MODES)
    assert stages(open_at(swizzle="128"))[0].startswith(f"swizzle {hopper.SWIZZLE} ")  # as in the kernels
    query = address.ADDRESS.read({})[0]
    tiles = tuple(query.tiles.items())
    of_warps = {address.scene(SMALL, query.rung.name, tiles, "accumulator", warp=int(w))[0].key for w in address.WARPS}
    assert len(of_warps) == len(address.WARPS)


def test_a_map_of_another_gpu_than_that_of_the_times_says_so():
    at = open_at(order="map", card="nvidia-h100-80gb-hbm3")
    assert "The map shows an H200. The times are of an H100 80GB HBM3." in texts(at)


def test_each_rung_is_on_the_stage_of_a_chapter():
    staged = {chapter.params.get("rung", address.DEFAULT_RUNG) for chapter in STORY.chapters}
    assert staged == set(address.ADDRESS.rungs)


def test_the_stage_alone():
    at = open_page("hopper/page.py", view="watch")
    assert len(heads(at)) == 1 and "<h1" not in texts(at)
