"""Shared parts of the convolution lessons: a lesson played in two orders, and the end of each lesson."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.model.rung import Ladder
from pages.conv import address, controls, scenes
from pages.parts import every_step, lesson, run, sources
from pages.parts.chapters import NO_STORY, Story
from pages.parts.query import chosen
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.charts.ladder_notes import LadderNotes
from visuals.conv.inputs import Inputs


def draw_with_orders(
    name: str,
    title: str,
    about: str,
    orders: Mapping[str, str],
    scene: Callable[[Inputs, str, scenes.Tiles], scenes.Ordered],
    notes: LadderNotes,
    derived: Callable[[ConvShape], str],
    rung: str,
    chapters: Story = NO_STORY,
    folds: Callable[[ConvShape], bool] | None = None,
    rungs: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draws the whole lesson `name`. Its stage plays `scene`, which shows `rung` with tile sizes, in one of `orders`. `derived` as for
    controls.inputs. `chapters`: those of the lesson. `folds(shape)`: whether its stage folds repeated steps. `rungs`: the
    rung of each order that shows another."""
    ladder, page = address.ladder(name), f"conv/{name}.py"
    chapter = chapters.open()
    parts, whole = lesson.begin(title, page=page if chapters.chapters else "", chapter=chapter)
    translated = {order: tr(text) for order, text in orders.items()}
    visible = whole and not chapter
    with lesson.controls(visible):
        inputs, link = controls.inputs(page, visible=visible, derived=derived, folds=folds)
        settings = run.options(ladder, inputs.shape, visible=visible)
    if "watch" in parts:
        order = chosen("order", orders)
        on_stage = ladder.rung(rungs.get(order, rung))
        drawn, reason = scene(inputs, order, tuple(settings.tiles_of(on_stage).items()))
        note_in_place(reason)
        Stage(
            name,
            drawn,
            settings,
            on_stage,
            controls.sizes(settings, on_stage),
            link,
            {} if chapter else translated,
            chapter,
            every_step=every_step.shown(bool(folds and folds(inputs.shape))),
        ).draw()
    if whole:
        idea(about)
    if {"run", "why"} & parts:
        run.run_section(settings, notes, link, sizes=controls.sizes(settings, ladder.rung(rung)))
    end(parts, ladder, inputs, sources.chosen_tiles, rung)


def end(
    parts: frozenset[str], ladder: Ladder, inputs: Inputs, tiles: sources.Tiles, first: str, file: str = ""
) -> None:
    """Draws pictures and kernels under the cards, or only the kernels. `tiles`, `first` and `file` as for
    sources.draw_tabs."""
    if len(parts) > 1:
        with lesson.below():
            controls.show_pictures(inputs)
            sources.draw_tabs(ladder, inputs.shape, tiles, first, file)
    elif "kernel" in parts:
        sources.draw_tabs(ladder, inputs.shape, tiles, first, file)
    lesson.load_deferred(parts)
