"""Shared parts of the convolution lessons: what their URLs select, and a lesson played in several orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernels.conv.shape import ConvShape
from kernels.model.rung import Rung
from pages.conv import address, controls, scenes
from pages.parts import every_step, sources
from pages.parts.chapters import Story
from pages.parts.controls import Link
from pages.parts.ladder_page import LadderPage, Played
from pages.parts.query import chosen
from pages.parts.tiles import SelectedRung
from visuals.charts.ladder_notes import LadderNotes
from visuals.conv.inputs import Inputs


@dataclass(frozen=True)
class Watched(SelectedRung):
    """The rung on the stage with its inputs, and the links to presets. `broken`: the rules that it breaks, if the controls
    name them."""

    inputs: Inputs
    link: Link
    broken: list[str] = field(default_factory=list)

    @property
    def shape(self) -> ConvShape:
        return self.inputs.shape


@dataclass(frozen=True)
class InOrder:
    """The rung of an order. The options of Run have the tile sizes of all rungs."""

    rung: Rung
    order: str
    inputs: Inputs
    rung_tiles: None = None
    broken: list[str] = field(default_factory=list)

    @property
    def shape(self) -> ConvShape:
        return self.inputs.shape

    @property
    def tiles(self) -> Mapping[str, int]:
        return sources.chosen_tiles(self.rung)

    def tiles_of(self, rung: Rung) -> Mapping[str, int]:
        return sources.chosen_tiles(rung)


def draw_with_orders(
    name: str,
    title: str,
    about: str,
    orders: Mapping[str, str],
    scene: Callable[[Inputs, str, scenes.Tiles], scenes.Ordered],
    notes: LadderNotes,
    derived: Callable[[ConvShape], str],
    rung: str,
    chapters: Story,
    rungs: Mapping[str, str],
    folds: Callable[[ConvShape], bool] = lambda shape: False,
) -> None:
    """Draws the whole lesson `name`. Its stage plays `scene`, which shows `rung` with tile sizes, in one of `orders`. `derived` as for
    controls.inputs. `chapters`: those of the lesson. `folds(shape)`: whether its stage folds repeated steps. `rungs`: the
    rung of each order that shows another."""
    ladder, page, chapter = address.ladder(name), f"conv/{name}.py", chapters.open()

    def read(visible: bool) -> tuple[InOrder, Link]:
        inputs, link = controls.inputs(page, visible=visible, derived=derived, folds=folds)
        order = chosen("order", orders)
        return InOrder(ladder.rung(rungs.get(order, rung)), order, inputs), link

    def play(selected: InOrder) -> Played:
        drawn, reason = scene(selected.inputs, selected.order, tuple(selected.tiles.items()))
        return Played(drawn, reason, {} if chapter else orders, every_step.shown(folds(selected.shape)))

    LadderPage(
        page=page,
        stage=name,
        title=title,
        about=about,
        ladder=ladder,
        notes=lambda _: notes,
        read=read,
        play=play,
        sizes=controls.sizes,
        beside=lambda selected: controls.show_pictures(selected.inputs),
    ).draw(chapter)
