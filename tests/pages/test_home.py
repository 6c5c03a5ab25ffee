"""The first screen without a browser: the data of its stages and the targets of its links."""

import json
import re
import runpy
from html import escape
from pathlib import Path

import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import LADDERS
from kernels.machine.status import Status
from pages import _course, _lessons, _reading, _teasers
from pages.conv import address as conv_address
from pages.conv import scenes
from pages.parts import address as parts_address
from pages.parts.chapters import Chapter, Story
from tests.helpers.page_runner import heads, links, open_page, stages, texts
from visuals import units
from visuals.conv.inputs import Inputs


def test_one_stage_plays_and_others_are_stills():
    first, *stills = heads(open_page(None))
    assert first["play"] and not first["still"] and first["param"] is None
    assert "transport" not in first["hide"] and "caption" not in first["hide"]  # moving content can be stopped
    assert [(head["still"], head["play"], head["param"], head["step"]) for head in stills] == [
        (True, False, None, teaser.step) for teaser in _teasers.TEASERS
    ]
    assert len({head["meta"]["key"] for head in stills}) == len(_teasers.TEASERS)


@pytest.mark.parametrize("teaser", [*_teasers.TEASERS, _teasers.FIRST], ids=lambda teaser: teaser.page)
def test_a_teaser_shows_a_moment_of_its_lesson(teaser):
    scene = teaser.build_scene()
    assert 0 <= teaser.step < scene.steps
    assert teaser.page in {lesson.page for lesson in _lessons.LESSONS}  # the lesson exists
    at = open_page(teaser.page, **teaser.query())
    assert stages(at) == [scene.key] and "kt-note" not in texts(at)


def test_the_course_has_every_lesson_in_order_with_its_question_and_what_it_builds_on():
    at = open_page(None)
    titles = [f"{n + 1} {lesson.title}" for n, lesson in enumerate(_lessons.LESSONS)]
    assert [label for label in links(at) if label[0].isdigit()] == titles
    assert all(links(at)[title] == {} for title in titles)  # the bare URL opens the story
    targets = {link.proto.label: link.proto.page for link in at.get("page_link")}
    assert [targets[title] for title in titles] == [lesson.path for lesson in _lessons.LESSONS]
    html, lines = texts(at), progress_lines(at)
    for lesson in _lessons.LESSONS:
        assert lesson.question.endswith("?") and lesson.question in html
        assert len(lesson.question.split()) <= 10
        line = lines[lesson.path]
        assert line["count"] == len(_course.story(lesson).chapters)
        minutes = f"{_course.minutes(lesson)} min"
        assert (minutes in line["rest"]) == (line["count"] > 0)
        assert bool(lesson.after) == any(text.startswith("after ") for text in line["rest"])
    assert lines["attention"]["rest"][1:] == ["advanced", "after tiling, softmax"]
    assert lines["threads"]["some"] == "{seen} of 9 chapters"


def test_a_lesson_builds_only_on_earlier_ones():
    paths = [lesson.path for lesson in _lessons.LESSONS]
    for n, lesson in enumerate(_lessons.LESSONS):
        assert set(lesson.after) <= set(paths[:n])


def test_a_lesson_is_not_easier_than_those_it_builds_on():
    levels = {lesson.path: lesson.level for lesson in _lessons.LESSONS}
    assert set(levels.values()) == set(range(len(_lessons.LEVELS)))
    for lesson in _lessons.LESSONS:
        assert all(levels[path] <= lesson.level for path in lesson.after), lesson.path


def test_every_lesson_names_what_to_read_with_year_and_link():
    html = texts(open_page(None))
    assert set(_reading.READING) == {lesson.path for lesson in _lessons.LESSONS}
    for sources in _reading.READING.values():
        assert 1 <= len(sources) <= 5 and len({source.title for source in sources}) == len(sources)
        for source in sources:
            assert 1950 < source.year < 2100
            assert f'<a href="{source.url}">{source.title}</a> ({source.year})' in html
            if re.fullmatch(r"\d{4}\.\d{4,5}", source.place):  # the number of a preprint begins with year and month
                assert source.place.startswith(f"{source.year % 100:02}")
            else:
                assert source.place.startswith(("10.", "https://"))


def test_the_minutes_follow_the_stated_rule():
    words = _course.WORDS_A_MINUTE
    story = Story((Chapter("one " * words, ("two " * words,)), Chapter("", (), nudge="three")))
    assert sum(len(text.split()) for text in story.texts()) == 2 * words + 1
    lesson = next(lesson for lesson in _lessons.LESSONS if lesson.path == "softmax")
    of_softmax = _course.story(lesson)
    counted = sum(len(text.split()) for text in of_softmax.texts())
    exact = len(of_softmax.chapters) + counted / words
    assert exact <= _course.minutes(lesson) < exact + 1
    assert _course.RULE.format(words=words) in texts(open_page(None)).replace("&#x27;", "'")


def test_three_ways_in_lead_to_what_they_promise():
    found = links(open_page(None))
    for _, ways, _ in home_ways():
        for label, page, params in ways:
            assert found[label] == params
            at = open_page(page, **params)
            assert "kt-note" not in texts(at)
    (head,) = heads(open_page("conv/im2col.py", view="story", play="1"))
    assert head["play"] and head["chapter"]["number"] == 0
    assert not heads(open_page("conv/im2col.py", view="story"))[0]["play"]


def progress_lines(at) -> dict[str, dict]:
    """Returns the data of the line under each lesson by the lesson's path."""
    found = [each.proto for each in at.get("bidi_component") if each.proto.component_name.endswith("progress")]
    return {data["path"]: data for data in (json.loads(proto.json) for proto in found)}


def home_ways():
    """Returns the ways in of pages/home.py, which draws when it is imported."""
    names = runpy.run_path(str(Path(_teasers.__file__).with_name("home.py")))
    return names["WAYS"]


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
    shape = conv_address.read(_teasers.FIRST.params)[0].shape
    assert ",".join(f"{k}={v}" for k, v in shape.params().items()) in stages(at)[0]
    text = texts(at)
    assert "kt-badge-recorded" in text and "kt-badge-measured" not in text
    bars = dict(re.findall(r"<dt>([^<]*)</dt>.*?</dd><dd>([^<]*)</dd>", text.partition("</dl>")[0]))
    for rung in map(LADDERS["conv"].rung, ("conv/direct", "conv/im2col-gemm")):
        time = units.time_(records.recorded(rung.name, shape, rung.default_tiles)["median_ms"])
        assert bars[escape(rung.title_on("cuda"))] == time


# -- the stage alone -----------------------------------------------------------------------------
@pytest.mark.parametrize("page", [None, "conv/im2col.py"])
def test_present_shows_only_the_stage(page):
    at = open_page(page, present="1", C="3")
    assert len(stages(at)) == 1
    assert not links(at) and not at.button and not at.number_input and not at.code and not texts(at).strip()


@pytest.mark.parametrize("value", ["0", "true", "yes", "11", "", "<script>"])
def test_other_values_of_present_are_ignored(value):
    at = open_page("conv/im2col.py", present=value)
    assert at.number_input and links(at) and at.code


def test_present_overrides_view():
    assert len(stages(open_page("conv/im2col.py", present="1", view="kernel"))) == 1


# -- links that keep the other parameters --------------------------------------------------------
def test_link_to_another_shape_drops_the_stage_parameters():
    stage_params = {"step": "5", "pin": "x:3", "zoom": "2,0.5,0.5", "loop": "1-4", "size": "real"}
    assert set(stage_params) == set(parts_address.STAGE)
    kept_params = {"speed": "2", "hide": "kernel", "order": "warps", "picture": "gradient"}
    queries = links(open_page("conv/im2col.py", **stage_params, **kept_params))
    query = next(query for label, query in queries.items() if label.startswith("LeNet conv1"))
    assert query == kept_params | conv_address.at_shape(conv_address.DEFAULT, CONV_PRESETS["lenet-conv1"].shape)


# -- scenes are built once -----------------------------------------------------------------------
def test_equal_inputs_give_one_scene():
    shape = CONV_PRESETS["toy"].shape
    scene = scenes.im2col(Inputs(shape, "digit", "sobel-x"), "warps")
    assert scenes.im2col(Inputs(shape, "digit", "sobel-x"), "warps")[0] is scene[0] and not scene[1]
    assert scenes.im2col(Inputs(shape, "numbers", "sobel-x"), "warps")[0] is not scene[0]
    assert scenes.im2col(Inputs(shape, "digit", "sobel-x"), "explaining")[0] is not scene[0]


def test_a_smaller_convolution_is_named_each_time():
    inputs = Inputs(CONV_PRESETS["vgg-conv1_2"].shape, "digit", "sobel-x")
    for _ in range(2):
        scene, reason = scenes.im2col(inputs, "warps")
        assert scene.order_name == "warp order" and "smaller convolution" in reason
