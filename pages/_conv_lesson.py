"""What lessons of a convolution share: one that is played in two orders, and what stands at the end of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernels.program import Ladder
from pages import _conv, _conv_controls, _kernels, _lesson, _run
from visuals import stage
from visuals.inputs import Inputs
from visuals.scene import Scene
from visuals.why import Story


def in_orders(
    name: str,
    title: str,
    idea: str,
    orders: Mapping[str, str],
    scene: Callable[[Inputs, str], tuple[Scene, str]],
    story: Story,
) -> None:
    """The whole lesson `name`, whose stage plays `scene` in one of `orders`."""
    ladder = _conv.ladder(name)
    parts, whole = _lesson.begin(title, idea)
    inputs, link = _conv_controls.inputs(f"{name}.py", shown=whole, orders=orders)
    if "watch" in parts:
        played, instead = scene(inputs, _lesson.chosen("order", orders))
        if instead:
            _lesson.note(instead)
        stage.mount(played, key=name)
    if {"run", "why"} & parts:
        _run.run_section(ladder, inputs.shape, story, link)
    end(parts, ladder, inputs, _kernels.chosen_tiles)


def end(
    parts: frozenset[str], ladder: Ladder, inputs: Inputs, tiles: _kernels.Tiles, first: str = ""
) -> None:
    """Pictures and kernels under the cards, or the kernels alone; `tiles`, `first` as _kernels.show takes them."""
    if len(parts) > 1:
        with _lesson.below():
            _conv_controls.show_pictures(inputs)
            _kernels.show(ladder, inputs.shape, tiles, first)
    elif "kernel" in parts:
        _kernels.show(ladder, inputs.shape, tiles, first)
    _lesson.settle(parts)
