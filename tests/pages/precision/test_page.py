"""Tests of the lesson on precision without a browser: every topic and field, the strip's kernel, bad input, its chapters."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.precision import record
from kernels.precision.formats import FP16, losses
from kernels.precision.ladder import LADDER
from pages import _teasers
from pages.parts.address import Choice
from pages.precision import address, chapters
from tests.helpers.offenders import every
from tests.helpers.page_runner import finish, heads, links, open_page, stages, strip, texts
from visuals.precision import products
from visuals.precision.tables import FULL

open_at = partial(open_page, "precision/page.py")
CHOICES = [
    pytest.param(topic, name, value, id=f"{topic}-{value}")
    for topic, fields in address.FIELDS.items()
    for name, field in fields.items()
    if isinstance(field, Choice)
    for value in field.choices
]


@pytest.mark.parametrize("topic", address.TITLES)
def test_a_topic_shows_its_stage_and_its_tables(topic):
    at = open_at(topic=topic, view="explore")
    html = texts(at)
    assert len(stages(at)) == 1 and "kt-note" not in html
    assert strip(at)["run"]["label"] == "Run here" and html.count('<table class="kt-table') >= 1
    assert {label.strip("*") for label in links(at)} >= {"gradients", "INT8", "instructions"}


@pytest.mark.parametrize(("topic", "name", "value"), CHOICES)
def test_every_choice_has_a_scene(topic, name, value):
    at = open_at(topic=topic, view="watch", **{name: value})
    assert len(stages(at)) == 1 and "kt-note" not in texts(at)


def test_eight_bit_products_have_the_cards_of_a_ladder():
    html = texts(open_at(topic="products", kernel="wgmma-int8", view="explore"))
    for part in ("Time", "Memory", "Roofline", "Why", "Kernel", "Errors of FP8 sums"):
        assert re.search(rf'<h2 class="kt-card">{part}(</h2>| <small>)', html), part


def test_instructions_have_the_cards_of_a_ladder():
    html = texts(open_at(topic="instructions", view="explore"))
    for part in ("Time", "Memory", "Roofline", "Why", "Kernel", "Instructions", "Control"):
        assert re.search(rf'<h2 class="kt-card">{part}(</h2>| <small>)', html), part
    assert "2,000 %" in html and "W. J. Dally" in html


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel"])
def test_each_view_shows_only_its_part(view):
    at = open_at(topic="sums", view=view)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert bool(at.code) == (view == "kernel") and len(stages(at)) == (view == "watch")
    assert "<h1" not in texts(at)


@pytest.mark.parametrize(
    ("params", "rung"),
    [
        ({}, "hfma2"),
        ({"format": "FP32"}, "ffma"),
        ({"format": "BF16"}, "mma-fp16"),
        ({"format": "INT8"}, "dp4a"),
        ({"topic": "gradients"}, "mma-fp16"),
        ({"topic": "sums"}, "hfma2"),
        ({"topic": "int8"}, "dp4a"),
        ({"topic": "instructions", "rung": "mma-int8"}, "mma-int8"),
    ],
)
def test_the_strip_is_about_the_instruction_that_computes_in_the_format(params, rung):
    topic = address.topic(params)
    values, notes = address.fields(topic).read(params)
    assert not notes and address.rung(topic, values) == f"instruction-rate/{rung}"
    sizes = [size["shape"] for size in strip(open_at(**params, view="explore"))["sizes"]]
    assert sizes[0].startswith("67,584 warps, 1,024 turns") and address.real(address.STAGE_SHAPE) == FULL


@pytest.mark.parametrize("kernel", address.KERNELS)
def test_eight_bit_products_have_a_ladder_of_their_own(kernel):
    values, notes = address.fields("products").read({"kernel": kernel})
    shape = address.stage_shape("products", values)
    rung = products.LADDER.rung(address.rung("products", values))
    assert not notes and not list(rung.rules(shape, rung.default_tiles))
    sizes = [size["shape"] for size in strip(open_at(topic="products", kernel=kernel))["sizes"]]
    assert sizes[0].startswith("4,096 × 4,096 × 4,096 " + products.TYPES[shape.dtype])
    preset = address.of_preset(shape)
    assert address.stage_shape("products", address.fields("products").read(preset)[0]) == shape


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"topic": "bits", "format": "FP12"}, "format must be one of FP16, FP32"),
        ({"topic": "bits", "x": "1e99"}, "x must be -1,000,000,000 to 1,000,000,000"),
        ({"topic": "bits", "x": "nan"}, "x must be a number"),
        ({"topic": "gradients", "at": "2"}, "at must be one of 150, 50, 1"),
        ({"topic": "int8", "output": "500"}, "output must be 0 to 119"),
        ({"topic": "instructions", "rung": "fma"}, "rung must be one of ffma, hfma2"),
    ],
)
def test_bad_input_is_named_and_replaced(params, words):
    at = open_at(**params)
    assert words in texts(at) and len(stages(at)) == 1


def test_activations_have_a_calibration_and_weights_a_scale():
    at = open_at(topic="int8", numbers="activations", view="explore")
    assert stages(at) == ["int8 activations fc2 extremes"]
    fields = {box.key for box in at.selectbox}
    assert "calibration" in fields and "scales" not in fields
    assert "scales" in {box.key for box in open_at(topic="int8", view="explore").selectbox}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"format": "FP16"}, "are those of hfma2: FP16 in pairs, which computes with such numbers"),
        (
            {"format": "BF16"},
            "No kernel of this lesson computes in BF16. The figures under the picture are those of mma.sync: FP16.",
        ),
        ({"topic": "sums"}, "are those of hfma2"),
    ],
)
def test_the_page_says_what_the_strip_has_to_do_with_the_picture(params, words):
    assert words in texts(open_at(**params, view="explore"))


def test_a_typed_number_is_stored_bit_by_bit_and_a_topic_is_a_link():
    at = open_at(topic="bits")
    at.number_input(key="x").set_value(2049.0).run()
    assert stages(at) == ["bits FP16 2049.0"]
    at = open_at(**links(at)["INT8"])
    assert stages(at) == ["int8 fc2 3 tensor"]


@pytest.mark.parametrize("topic", address.TITLES)
def test_recorded_trainings_have_their_curves_in_the_strip(topic):
    shown = [size.get("curve") for size in strip(open_page("precision/page.py", topic=topic))["sizes"]]
    expected = address.curve(topic)
    assert all(curve == expected for curve in shown)
    assert (expected is not None) == (topic in (address.SCALING, address.WEIGHTS))


def test_the_chapters_know_the_bits_of_the_formats():
    found = chapters.facts({})
    assert (found["fp16_bits"], found["bf16_bits"]) == ("5", "8")  # of the exponent


def test_an_unknown_topic_shows_the_first():
    assert stages(open_at(topic="fp4", view="explore")) == ["bits FP16 0.1"]


def test_an_output_that_a_layer_does_not_have_shows_its_last():
    assert stages(open_at(topic="int8", layer="fc3", output="50")) == ["int8 fc3 9 tensor"]
    assert address.bounds("int8", {"layer": "fc3"})["output"].high == 9


@given(x=st.floats(-1e9, 1e9))
def test_any_number_has_a_scene(x):
    for name in address.FORMATS:
        scene = address.SCENES["bits"]({"format": name, "x": x})
        assert all(scene.caption(t) for t in range(scene.steps))


def test_run_measures_the_rungs_that_a_processor_runs():
    at = open_at(topic="instructions", engine="cpu", view="run")
    finish(at, "run", "job")
    assert "kt-badge-measured" in texts(at)
    assert set(at.session_state["ran"].rows) == {rung.name for rung in LADDER.rungs if "cpu" in rung.engines}


def test_the_card_of_the_home_page_is_a_moment_of_this_page():
    (teaser,) = [teaser for teaser in _teasers.TEASERS if teaser.page == "precision/page.py"]
    scene = teaser.build_scene()
    at = open_at(**teaser.params, view="explore")
    assert stages(at) == [scene.key] and heads(at)[0]["meta"]["steps"] == scene.steps > teaser.step


# -- the story -------------------------------------------------------------------------------------
def test_questions_are_answered_by_the_data():
    found = [chapter.question for chapter in chapters.CHAPTERS if chapter.question]
    assert len(found) >= 4
    for question in found:
        assert question.right({}) is not None, question.text


def test_the_figures_of_the_chapters_are_those_of_the_data():
    facts = chapters.facts({})
    assert all(facts.values())
    x = record.gradient("d conv1.y", 150)
    assert facts["lost"] == f"{100 * losses(x, FP16).underflow:.0f} %"
    assert facts["nonzero"] == f"{100 * (x != 0).mean():.0f} %"  # the shares are of these
    enough = int(facts["enough"].removeprefix("2^"))
    assert losses(x, FP16, 2.0**enough).underflow < 0.1 <= losses(x, FP16, 2.0 ** (enough - 1)).underflow
    assert (facts["overhead_hfma"], facts["overhead_hdp4a"], facts["overhead_hmma"]) == ("2,000 %", "500 %", "27 %")
    assert facts["tie_stored"] == "2048"


@every("n", range(len(chapters.CHAPTERS)))
def test_no_stage_tells_the_answer_before_the_guess(n):
    """At the step where a chapter opens, the caption has no answer of its question."""
    chapter = chapters.CHAPTERS[n]
    if not chapter.question:
        return
    scene = address.scene_at(dict(chapter.params))
    right = chapter.question.answers[chapter.question.right({})]
    assert right.removesuffix(" %") not in scene.caption(chapter.step).replace(",", "")
