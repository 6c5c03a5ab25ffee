"""The first screen without a browser: what its stages are sent, and where its links lead."""

import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import LADDERS
from kernels.machine.status import Status
from pages import _cards, _lessons
from pages.conv import address as conv_address
from pages.conv import scenes
from pages.parts import address as parts_address
from tests.helpers.opened import heads, links, open_page, stages, texts
from visuals.charts import units
from visuals.conv.inputs import Inputs


def test_one_stage_plays_and_every_other_is_a_still_of_its_card():
    first, *stills = heads(open_page(None))
    assert first["play"] and not first["still"] and first["param"] is None
    assert "transport" not in first["hide"] and "caption" not in first["hide"]  # what moves can be stopped
    assert [(head["still"], head["play"], head["param"], head["step"]) for head in stills] == [
        (True, False, None, card.step) for card in _cards.CARDS
    ]
    assert len({head["meta"]["key"] for head in stills}) == len(_cards.CARDS)


@pytest.mark.parametrize("card", [*_cards.CARDS, _cards.FIRST], ids=lambda card: card.title)
def test_a_card_leads_to_the_scene_it_previews(card):
    scene = card.shown()
    assert 0 <= card.step < scene.steps
    assert card.page in {lesson.page for lesson in _lessons.LESSONS}  # nothing is promised that is not there
    at = open_page(card.page, **card.query())
    assert stages(at) == [scene.key] and "kt-note" not in texts(at)


def test_links_carry_what_the_cards_say():
    at = open_page(None)
    for card in _cards.CARDS:
        assert links(at)[card.title] == card.query()
    for key, label in _cards.LAYERS.items():
        assert conv_address.read(links(at)[label])[0].shape == CONV_PRESETS[key].shape


def test_engines_are_told_with_words_for_one_that_is_absent(monkeypatch):
    from kernels import engines

    told = {
        "cuda": Status(False, "no <GPU> here"),
        "cpu": Status(True, "A Processor, 4 cores"),
        "emulator": Status(True, "NumPy"),
    }
    monkeypatch.setattr(engines, "available", lambda: told)
    import streamlit as st

    st.cache_data.clear()
    try:
        shown = texts(open_page(None))
    finally:
        st.cache_data.clear()
    assert "no &lt;GPU&gt; here" in shown and "A Processor, 4 cores" in shown
    assert shown.count("kt-absent") == 1 and shown.count("kt-here") == 2


def test_the_times_beside_the_stage_are_recordings_of_what_it_plays():
    at = open_page(None)
    shape = conv_address.read(_cards.FIRST.params)[0].shape
    assert stages(at)[0].endswith(",".join(f"{k}={v}" for k, v in shape.params().items()))
    shown = texts(at)
    assert "kt-badge-recorded" in shown and "kt-badge-measured" not in shown
    direct = LADDERS["conv"].rung("conv/direct")
    assert units.time_(records.recorded(direct.name, shape, direct.default_tiles)["median_ms"]) in shown


# -- the stage alone -----------------------------------------------------------------------------
@pytest.mark.parametrize("page", [None, "conv/im2col.py"])
def test_presented_the_stage_stands_alone(page):
    at = open_page(page, present="1", C="3")
    assert len(stages(at)) == 1
    assert not links(at) and not at.button and not at.number_input and not at.code and not texts(at).strip()


@pytest.mark.parametrize("value", ["0", "true", "yes", "11", "", "<script>"])
def test_another_value_of_present_is_ignored(value):
    at = open_page("conv/im2col.py", present=value)
    assert at.number_input and links(at) and at.code


def test_presented_with_a_view_it_is_still_the_stage():
    assert len(stages(open_page("conv/im2col.py", present="1", view="kernel"))) == 1


# -- links that carry the other parameters along -------------------------------------------------
def test_a_link_to_another_shape_leaves_the_moment_of_the_stage_behind():
    moment = {"step": "5", "pin": "x:3", "zoom": "2,0.5,0.5", "loop": "1-4"}
    assert set(moment) == set(parts_address.STAGE)
    kept = {"speed": "2", "hide": "kernel", "order": "warps", "picture": "gradient"}
    shown = links(open_page("conv/im2col.py", **moment, **kept))
    query = next(query for label, query in shown.items() if label.startswith("LeNet conv1"))
    assert query == kept | conv_address.at(conv_address.DEFAULT, CONV_PRESETS["lenet-conv1"].shape)


# -- scenes are built once -----------------------------------------------------------------------
def test_equal_inputs_are_one_scene():
    shape = CONV_PRESETS["toy"].shape
    one = scenes.im2col(Inputs(shape, "digit", "sobel-x"), "warps")
    assert scenes.im2col(Inputs(shape, "digit", "sobel-x"), "warps")[0] is one[0] and not one[1]
    assert scenes.im2col(Inputs(shape, "numbers", "sobel-x"), "warps")[0] is not one[0]
    assert scenes.im2col(Inputs(shape, "digit", "sobel-x"), "explaining")[0] is not one[0]


def test_an_order_that_cannot_be_shown_says_why_each_time():
    inputs = Inputs(CONV_PRESETS["vgg-conv1_2"].shape, "digit", "sobel-x")
    for _ in range(2):
        scene, instead = scenes.im2col(inputs, "warps")
        assert "shown in part" in instead and scene.order_name == "explaining order"
