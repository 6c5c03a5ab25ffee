"""Tests of the lesson on direct convolution without a browser: every preset, invalid input, orders."""

import pytest

from kernels.conv.presets import CONV_PRESETS
from pages.conv import address, scenes
from pages.conv.controls import CHIPS, PRESETS
from tests.helpers.page_runner import heads, links, open_page, stages, strip, texts
from visuals.conv.direct.scene import shown


def open_at(page="conv/direct.py", **params):
    return open_page(page, **params)


@pytest.mark.parametrize("key", [*CHIPS][::5])
def test_a_chip_opens_a_page_with_every_part(key):
    shape = PRESETS[key].shape
    at = open_at(**address.at_shape(address.DEFAULT, shape))
    html = texts(at)
    assert ("kt-note" in html) == ("smaller convolution" in html) == (shown(shape) != shape)
    for part in ("Time", "Memory", "Roofline", "Why", "Kernel"):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert [stage for stage in stages(at) if stage.startswith("conv/direct ")]
    assert f"H={shown(shape).H}," in stages(at)[0]
    assert "Each pixel is loaded up to" in html and 'class="kt-pictures"' in html
    assert {"01_direct.cu", "04_direct_tiled.cu"} <= {tab.label for tab in at.tabs}


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel"])
def test_each_view_shows_only_its_part(view):
    at = open_at(view=view, C=2)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert len(stages(at)) == (view == "watch") and bool(at.code) == (view == "kernel")
    assert not at.number_input and "<h1" not in texts(at)


def test_invalid_parameters_are_named_and_escaped():
    at = open_at(H="abc", R="1e400", mode="<script>alert(1)</script>", order="<b>", K="3")
    html = texts(at)
    assert "H must be a whole number" in html and "&lt;script" in html and "<script" not in html
    assert at.number_input(key="K").value == 3 and at.number_input(key="H").value == 8


@pytest.mark.parametrize("order", ["warps", "tiled"])
def test_each_order_is_played_at_any_size(order):
    for shape in (CONV_PRESETS["toy"].shape, CONV_PRESETS["vgg-conv1_2"].shape):
        at = open_at(order=order, **address.at_shape(address.DEFAULT, shape))
        assert f" {order} " in stages(at)[0]


def test_flipped_filter_is_described():
    query, _ = address.read({"mode": "convolution"})
    scene, _ = scenes.direct(query.inputs(), "explaining")
    assert "h = 0·1 − 0 + 2·1 = 2" in scene.caption(1)
    taps = next(entry for entry in scene.annotations if entry.tensor == "w")
    assert "The filter is flipped" in taps.captions.templates[0]


def test_groups_parameter_is_ignored():
    at = open_at(groups="2")
    assert stages(at) and not at.exception


def test_many_products_are_one_step_until_every_step_is_chosen():
    assert "every step" not in links(open_at())
    at = open_at(C=4)
    target = links(at)["every step"]
    assert target == {"C": "4", "steps": "all"} and " explaining False" in stages(at)[0]
    assert heads(at)[0]["every"] == {"all": False, "text": "every step"}
    opened = open_at(**target)
    assert " explaining True" in stages(opened)[0]
    assert heads(opened)[0]["every"] == {"all": True, "text": "fold steps"}
    assert not any("curve" in size for size in strip(opened)["sizes"])
