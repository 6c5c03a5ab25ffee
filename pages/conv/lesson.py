"""Shared parts of the convolution lessons: a lesson played in two orders, and the end of each lesson."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernels.model.rung import Ladder
from pages.conv import address, controls
from pages.parts import lesson, run, sources
from pages.parts.query import chosen
from pages.parts.text import note
from visuals import stage
from visuals.charts.story import Story
from visuals.conv.inputs import Inputs
from visuals.scene.scene import Scene


def draw_with_orders(
    name: str,
    title: str,
    idea: str,
    orders: Mapping[str, str],
    scene: Callable[[Inputs, str], tuple[Scene, str]],
    story: Story,
) -> None:
    """Draws the whole lesson `name`. Its stage plays `scene` in one of `orders`."""
    ladder = address.ladder(name)
    parts, whole = lesson.begin(title, idea)
    inputs, link = controls.inputs(f"conv/{name}.py", visible=whole, orders=orders)
    if "watch" in parts:
        played, reason = scene(inputs, chosen("order", orders))
        if reason:
            note(reason)
        stage.mount(played, key=name)
    if {"run", "why"} & parts:
        run.run_section(ladder, inputs.shape, story, link)
    end(parts, ladder, inputs, sources.chosen_tiles)


def end(parts: frozenset[str], ladder: Ladder, inputs: Inputs, tiles: sources.Tiles, first: str = "") -> None:
    """Draws pictures and kernels under the cards, or only the kernels. `tiles` and `first` as for sources.show."""
    if len(parts) > 1:
        with lesson.below():
            controls.show_pictures(inputs)
            sources.draw_tabs(ladder, inputs.shape, tiles, first)
    elif "kernel" in parts:
        sources.draw_tabs(ladder, inputs.shape, tiles, first)
    lesson.load_deferred(parts)
