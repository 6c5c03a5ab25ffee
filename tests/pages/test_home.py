"""The first screen without a browser: the data of its stages and the targets of its links."""

import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import LADDERS
from kernels.machine.status import Status
from pages import _cards, _lessons
from pages.conv import address as conv_address
from pages.conv import scenes
from pages.parts import address as parts_address
from tests.helpers.page_runner import heads, links, open_page, stages, texts
from visuals.charts import units
from visuals.conv.inputs import Inputs


def test_one_stage_plays_and_others_are_stills():
    first, *stills = heads(open_page(None))
    assert first["play"] and not first["still"] and first["param"] is None
    assert (
        "transport" not in first["hide"] and "caption" not in first["hide"]
    )  # moving content can be stopped
    assert [(head["still"], head["play"], head["param"], head["step"]) for head in stills] == [
        (True, False, None, card.step) for card in _cards.CARDS
    ]
    assert len({head["meta"]["key"] for head in stills}) == len(_cards.CARDS)


@pytest.mark.slow
@pytest.mark.parametrize("card", [*_cards.CARDS, _cards.FIRST], ids=lambda card: card.title)
def test_card_opens_the_scene_it_previews(card):
    scene = card.build_scene()
    assert 0 <= card.step < scene.steps
    assert card.page in {lesson.page for lesson in _lessons.LESSONS}  # the lesson exists
    at = open_page(card.page, **card.query())
    assert stages(at) == [scene.key] and "kt-note" not in texts(at)


def test_links_have_the_parameters_of_the_cards():
    at = open_page(None)
    for card in _cards.CARDS:
        assert links(at)[card.title] == card.query()
    for key, label in _cards.LAYERS.items():
        assert conv_address.read(links(at)[label])[0].shape == CONV_PRESETS[key].shape


def test_engines_are_listed_with_reason_if_absent(monkeypatch):
    from kernels import engines

    statuses = {
        "cuda": Status(False, "no <GPU> here"),
        "cpu": Status(True, "A Processor, 4 cores"),
        "emulator": Status(True, "NumPy"),
    }
    monkeypatch.setattr(engines, "available", lambda: statuses)
    import streamlit as st

    st.cache_data.clear()
    try:
        text = texts(open_page(None))
    finally:
        st.cache_data.clear()
    assert "no &lt;GPU&gt; here" in text and "A Processor, 4 cores" in text
    assert text.count("kt-absent") == 1 and text.count("kt-here") == 2


def test_times_beside_stage_are_recordings_of_its_shape():
    at = open_page(None)
    shape = conv_address.read(_cards.FIRST.params)[0].shape
    assert stages(at)[0].endswith(",".join(f"{k}={v}" for k, v in shape.params().items()))
    text = texts(at)
    assert "kt-badge-recorded" in text and "kt-badge-measured" not in text
    direct = LADDERS["conv"].rung("conv/direct")
    assert units.time_(records.recorded(direct.name, shape, direct.default_tiles)["median_ms"]) in text


# -- the stage alone -----------------------------------------------------------------------------
@pytest.mark.parametrize("page", [None, "conv/im2col.py"])
def test_present_shows_only_the_stage(page):
    at = open_page(page, present="1", C="3")
    assert len(stages(at)) == 1
    assert not links(at) and not at.button and not at.number_input and not at.code and not texts(at).strip()


@pytest.mark.slow
@pytest.mark.parametrize("value", ["0", "true", "yes", "11", "", "<script>"])
def test_other_values_of_present_are_ignored(value):
    at = open_page("conv/im2col.py", present=value)
    assert at.number_input and links(at) and at.code


def test_present_overrides_view():
    assert len(stages(open_page("conv/im2col.py", present="1", view="kernel"))) == 1


# -- links that keep the other parameters --------------------------------------------------------
def test_link_to_another_shape_drops_the_stage_parameters():
    stage_params = {"step": "5", "pin": "x:3", "zoom": "2,0.5,0.5", "loop": "1-4"}
    assert set(stage_params) == set(parts_address.STAGE)
    kept_params = {"speed": "2", "hide": "kernel", "order": "warps", "picture": "gradient"}
    queries = links(open_page("conv/im2col.py", **stage_params, **kept_params))
    query = next(query for label, query in queries.items() if label.startswith("LeNet conv1"))
    assert query == kept_params | conv_address.at_shape(
        conv_address.DEFAULT, CONV_PRESETS["lenet-conv1"].shape
    )


# -- scenes are built once -----------------------------------------------------------------------
def test_equal_inputs_give_one_scene():
    shape = CONV_PRESETS["toy"].shape
    scene = scenes.im2col(Inputs(shape, "digit", "sobel-x"), "warps")
    assert scenes.im2col(Inputs(shape, "digit", "sobel-x"), "warps")[0] is scene[0] and not scene[1]
    assert scenes.im2col(Inputs(shape, "numbers", "sobel-x"), "warps")[0] is not scene[0]
    assert scenes.im2col(Inputs(shape, "digit", "sobel-x"), "explaining")[0] is not scene[0]


def test_unsupported_order_gives_reason_each_time():
    inputs = Inputs(CONV_PRESETS["vgg-conv1_2"].shape, "digit", "sobel-x")
    for _ in range(2):
        scene, reason = scenes.im2col(inputs, "warps")
        assert "shown in part" in reason and scene.order_name == "explaining order"
