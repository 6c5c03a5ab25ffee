"""The lesson on direct convolution without a browser: it opens at every preset, and names what it cannot take."""

import pytest

from kernels.conv.presets import CONV_PRESETS
from pages.conv import address, scenes
from pages.conv.controls import CHIPS
from tests.helpers.opened import open_page, stages, texts


def open_at(page="conv/direct.py", **params):
    return open_page(page, **params)


@pytest.mark.parametrize("key", CHIPS)
def test_every_chip_opens_a_page_with_every_part(key):
    shape = CONV_PRESETS[key].shape
    at = open_at(**address.at(address.DEFAULT, shape))
    shown = texts(at)
    assert "kt-note" not in shown
    for part in ("Time", "Memory", "Roofline", "Why", "Kernel"):
        assert f'<h2 class="kt-card">{part}</h2>' in shown, part
    assert [stage for stage in stages(at) if stage.startswith("direct ")] and f"H={shape.H}," in stages(at)[0]
    assert "each pixel is asked for up to" in shown and 'class="kt-pictures"' in shown
    assert {"01_direct.cu", "04_direct_tiled.cu"} <= {tab.label for tab in at.tabs}


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel"])
def test_each_view_is_its_part_alone(view):
    at = open_at(view=view, C=2)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert len(stages(at)) == (view == "watch") and bool(at.code) == (view == "kernel")
    assert not at.number_input and "<h1" not in texts(at)


def test_hostile_parameters_are_named_and_harmless():
    at = open_at(H="abc", R="1e400", mode="<script>alert(1)</script>", order="<b>", K="3")
    shown = texts(at)
    assert "H must be a whole number" in shown and "&lt;script" in shown and "<script" not in shown
    assert at.number_input(key="K").value == 3 and at.number_input(key="H").value == 8


def test_the_order_of_the_warps_is_played_where_it_can_be_and_else_refused_in_words():
    assert stages(open_at(order="warps"))[0].endswith("warps")
    at = open_at(order="warps", **address.at(address.DEFAULT, CONV_PRESETS["vgg-conv1_2"].shape))
    assert not stages(at)[0].endswith("warps") and "is shown in part" in texts(at)


def test_a_flipped_filter_is_told():
    asked, _ = address.read({"mode": "convolution"})
    scene, _ = scenes.direct(asked.inputs(), "explaining")
    assert "(2 − 0)·1" in scene.caption(0)
    taps = next(told for told in scene.told if told.of == "w")
    assert "The filter is flipped" in taps.words.templates[0]


def test_grouped_shapes_of_other_lessons_cannot_be_asked_for():
    at = open_at(groups="2")
    assert stages(at) and not at.exception
