"""Precision: how numbers are stored, what training loses in 16 bits, INT8, and what one instruction does."""

from collections.abc import Callable

import streamlit as st

from kernels.i18n import mark, tr
from pages.parts import gpu_choice, lesson, query, run, sources
from pages.parts.address import Values
from pages.parts.chapters import OpenChapter
from pages.parts.controls import Link, line
from pages.parts.run_settings import RunSettings
from pages.parts.sizes import Sizes
from pages.parts.stage import Stage
from pages.parts.text import quiet
from pages.parts.values_page import Parts, ValuesPage
from pages.precision import address, cards
from pages.precision.chapters import STORY
from visuals.precision import notes as precision_notes
from visuals.precision import products

PAGE = "precision/page.py"
IDEAS = {
    address.BITS: (
        mark("A number bit by bit"),
        mark(
            'A floating-point number is <span class="kt-math">± 1.mantissa · 2<sup>exponent − bias</sup></span>. Exponent bits set the '
            "range, mantissa bits the digits. A result between two numbers is rounded to the nearer one, a tie to the even one."
        ),
    ),
    address.GRADIENTS: (
        mark("Gradients in few bits"),
        mark(
            "Gradients get smaller while a network learns. Below half of the smallest number of a format they become 0. A loss "
            "scale multiplies all of them, so that more are stored."
        ),
    ),
    address.SCALING: (
        mark("A loss scale rescues a training"),
        mark(
            "The loss is multiplied by a scale, so that all gradients are. Before the update they are divided by it again. A "
            "dynamic scale is halved when gradients overflow, and that update is skipped. Later it is doubled again."
        ),
    ),
    address.WEIGHTS: (
        mark("Weights need more digits"),
        mark(
            "An update smaller than half the distance between two numbers changes nothing: the weight is rounded back. So "
            "training keeps the weights in FP32 and computes with a rounded copy."
        ),
    ),
    address.SUMS: (
        mark("Sums need more bits than their terms"),
        mark(
            "A sum grows, its terms do not. Once they are smaller than half the distance between two numbers, the sum stays as it is. "
            "Tensor cores multiply in FP16 and add in FP32."
        ),
    ),
    address.INT8: (
        mark("INT8: whole numbers with a scale"),
        mark(
            'A scale turns weights into whole numbers: <span class="kt-math">q = round(w / scale)</span>. One scale for a layer is simple. '
            "One for each output uses the 255 values better. Activations that are never below 0 also get a zero point."
        ),
    ),
    address.INSTRUCTIONS: (
        mark("What one instruction does"),
        mark(
            "Each kernel multiplies the same matrices from registers. They differ in the multiply-adds of one instruction: from "
            "32 for a warp to 4,096. Fetching and decoding is paid for each instruction."
        ),
    ),
    address.PRODUCTS: (
        mark("Products of 8-bit numbers"),
        mark(
            "One instruction of the tensor cores multiplies twice as many 8-bit numbers as 16-bit ones. Sums of INT8 are INT32 and "
            "exact. Sums of FP8 keep 14 bits in Hopper’s tensor cores. FP32 sums of short pieces keep more (promotion)."
        ),
    ),
}
LADDERS = address.INSTRUCTIONS, address.PRODUCTS  # topics that are about a ladder


chapter = STORY.open()
topic = address.topic(query.url_values())
ladder, fields = address.ladder(topic), address.fields(topic)
own: Callable[..., str] = products.name if topic == address.PRODUCTS else precision_notes.name  # of the ladder's shape
sizes = Sizes(own, address.real)


def controls(values: Values) -> None:
    """Draws links to the topics, then the fields of this one."""
    with st.container(key="chips", horizontal=True):
        for other, title in address.TITLES.items():
            label = tr(title)
            st.page_link(
                PAGE,
                label=f"**{label}**" if other == topic else label,
                query_params=query.explored({"topic": other} | gpu_choice.kept()),
            )
    if not fields.by_name:
        return
    bounds = address.bounds(topic, values)
    drawn = [name for name in fields.by_name if name not in address.unused(values)]
    with st.container(key="params", horizontal=True):  # the numbers last
        line(fields, ",".join(sorted(drawn, key=bounds.__contains__)), bounds)


def about_strip(values: Values) -> str:
    """Returns what the figures under the picture have to do with it."""
    measured = tr(ladder.rung(address.rung(topic, values)).title)
    if address.computes_in(topic, values):
        return tr("The figures under the picture are those of {rung}, which computes with such numbers.", rung=measured)
    return tr(
        "No kernel of this lesson computes in {format}. The figures under the picture are those of {rung}.",
        format=values["format"],
        rung=measured,
    )


def settings_of(values: Values) -> RunSettings:
    rung = ladder.rung(address.rung(topic, values))
    return run.options(ladder, address.stage_shape(topic, values), (rung.name, rung.default_tiles), visible=False)


def stage(values: Values, chapter: OpenChapter | None) -> None:
    settings, curve = settings_of(values), address.curve(topic)
    Stage(
        "precision",
        address.scene(topic, values),
        settings,
        ladder.rung(address.rung(topic, values)),
        sizes,
        chapter=chapter,
        curve=curve,
        has_strip=not chapter or bool(curve) or topic in LADDERS,
    ).draw()
    if chapter or len(lesson.parts()) == 1:
        return
    if topic not in LADDERS:
        quiet(about_strip(values))
    if topic == address.PRODUCTS and settings.shape.dtype == "int8":
        quiet(tr("The picture shows a sum of FP8 products. Sums of INT8 products are exact."))


def measured(parts: Parts) -> bool:
    """Returns whether the page shows the figures of the ladder: its topic is about it, or they are all that is shown."""
    return topic in LADDERS or len(parts) == 1


def panels(values: Values, parts: Parts) -> None:
    if len(parts) > 1 and not chapter:
        cards.draw(topic, values)
    if measured(parts):
        sentences = products.PRODUCTS if topic == address.PRODUCTS else precision_notes.RATE
        run.run_section(settings_of(values), sentences, Link(PAGE, dict, address.of_preset), sizes=sizes)


def kernels(values: Values, parts: Parts) -> None:
    if measured(parts):
        first = address.rung(topic, values)
        sources.draw_tabs(ladder, address.stage_shape(topic, values), lambda rung: rung.default_tiles, first)


title, about = map(tr, IDEAS[topic])
ValuesPage(PAGE, title, about, fields, (), controls, stage, panels, kernels).draw(chapter)
