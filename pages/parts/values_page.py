"""The page of a lesson whose URL holds values of fields. Its stage has a run of its own, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pages.parts import lesson, query
from pages.parts.address import Fields, Values
from pages.parts.chapters import OpenChapter
from pages.parts.text import idea, note_in_place, nothing

Parts = frozenset[str]


@dataclass(frozen=True)
class ValuesPage:
    """A lesson whose URL holds values of `fields`.

    `page` is its file. `title` and `about`, HTML, are translated. `linked` are the fields that are set by links. `wrong(values)`
    are rules that the values break beside those of `fields`. `stage` gets the values and the open chapter; `cards` and `kernels`
    get the values and the parts of the page that are drawn.
    """

    page: str
    title: str
    about: str
    fields: Fields
    linked: tuple[str, ...]
    controls: Callable[[Values], None]
    stage: Callable[[Values, OpenChapter | None], None]
    cards: Callable[[Values, Parts], None]
    kernels: Callable[[Values, Parts], None] = nothing
    wrong: Callable[[Values], list[str]] = lambda values: []

    def draw(self, chapter: OpenChapter | None = None) -> None:
        """Draws the page. `chapter` is the open one of its story."""
        parts, whole = lesson.begin(self.title, page=self.page, chapter=chapter)
        visible = whole and not chapter
        values, notes = query.current_values(self.fields, visible)
        query.follow_link(f"_{self.page}", (self.fields.lesson, *(values[name] for name in self.linked)))
        with lesson.controls(visible):
            if visible:
                self.controls(values)
        note_in_place(*notes, *self.wrong(values))
        if "watch" in parts:
            self.stage(values, chapter)
        if whole:
            idea(self.about)
        if {"run", "why"} & parts:
            self.cards(values, parts)
        if "kernel" in parts:
            self.kernels(values, parts)
        lesson.load_deferred(parts)
