"""The page of a lesson on the kernels of a ladder. A lesson is one `LadderPage`: what differs between lessons, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from kernels.i18n import tr
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape
from pages.parts import lesson, run, sources
from pages.parts.chapters import OpenChapter
from pages.parts.controls import Link
from pages.parts.run_settings import RunSettings
from pages.parts.sizes import Sizes
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place, nothing
from visuals.charts.ladder_notes import LadderNotes
from visuals.scene.scene import Scene


class Selected(Protocol):
    """What the URL of such a lesson selects: a shape, and a rung with its tile sizes. Mostly a rung_address.Selection."""

    @property
    def shape(self) -> Shape: ...

    @property
    def rung(self) -> Rung: ...

    @property
    def tiles(self) -> Mapping[str, int]: ...

    @property
    def rung_tiles(self) -> tuple[str, Mapping[str, int]] | None: ...

    @property
    def broken(self) -> list[str]:
        """Returns the rules that the rung breaks, which the controls name."""
        ...

    def tiles_of(self, rung: Rung) -> Mapping[str, int]: ...


Q = TypeVar("Q", bound=Selected)


class Played(NamedTuple):
    """What the stage plays: a scene, or None; why it is not the requested one; the orders to choose from, with their marked
    explanations; whether repeated steps are shown one by one (None: none are folded)."""

    scene: Scene | None
    reason: str = ""
    orders: Mapping[str, str] = {}
    every_step: bool | None = None


class Drawn(NamedTuple, Generic[Q]):
    """What the panels of a lesson know: the parts of the page, whether they are all, and what the controls select."""

    parts: frozenset[str]
    whole: bool
    selected: Q
    link: Link
    settings: RunSettings


@dataclass(frozen=True)
class LadderPage(Generic[Q]):
    """A lesson on the kernels of a ladder.

    `page` is its file, `stage` the key of its stage. `title` and `about`, HTML, are translated. `read(visible)` draws the
    controls, or only reads the URL; it returns what they select, and the links to presets. `more_parts` are the parts that
    `panels` draws under the cards; `above` is drawn over the cards of the whole page, `more` right under them, `beside` left
    of the kernels. `file` is the source file in front of several of the rung.
    """

    page: str
    stage: str
    title: str
    about: str
    ladder: Ladder
    notes: Callable[[Q], LadderNotes]
    read: Callable[[bool], tuple[Q, Link]]
    play: Callable[[Q], Played]
    sizes: Callable[[Q], Sizes]
    above: Callable[[Q], None] = nothing
    more: Callable[[RunSettings], None] = nothing
    more_parts: tuple[str, ...] = ()
    panels: Callable[[Drawn[Q]], None] = nothing
    beside: Callable[[Q], None] | None = None
    file: Callable[[Q], str] = lambda selected: ""

    def draw(self, chapter: OpenChapter | None = None) -> None:
        """Draws the page. `chapter` is the open one of its story."""
        parts, whole = lesson.begin(self.title, *self.more_parts, page=self.page, chapter=chapter)
        visible = whole and not chapter
        with lesson.controls(visible):
            selected, link = self.read(visible)
            settings = run.options(self.ladder, selected.shape, selected.rung_tiles, visible=visible)
        drawn, sizes = Drawn(parts, whole, selected, link, settings), self.sizes(selected)
        if "watch" in parts:
            self._stage(drawn, sizes, chapter)
        if whole:
            idea(self.about)
            self.above(selected)
        if {"run", "why"} & parts:
            run.run_section(settings, self.notes(selected), link, more=self.more, sizes=sizes)
        self.panels(drawn)
        if whole and self.beside:
            with lesson.below():
                self.beside(selected)
                self._kernels(selected)
        elif "kernel" in parts:
            self._kernels(selected)
        lesson.load_deferred(parts)

    def _stage(self, drawn: Drawn[Q], sizes: Sizes, chapter: OpenChapter | None) -> None:
        selected, played = drawn.selected, self.play(drawn.selected)
        named = drawn.whole and not chapter and not played.scene and selected.broken
        note_in_place("" if named else played.reason)
        Stage(
            self.stage,
            played.scene,
            drawn.settings,
            selected.rung,
            sizes,
            drawn.link,
            {order: tr(text) for order, text in played.orders.items()},
            chapter,
            every_step=played.every_step,
        ).draw()

    def _kernels(self, selected: Q) -> None:
        rung = selected.rung.name
        sources.draw_tabs(self.ladder, selected.shape, selected.tiles_of, rung, self.file(selected))
