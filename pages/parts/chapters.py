"""A lesson in chapters. Each sets the stage and has two to four sentences about it; some have a guess before the figure.

A chapter is data. Figures in its sentences are fields, filled from the same evidence that the strip shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from kernels.i18n import tr
from pages.parts import address
from visuals.strip.evidence import Evidence

VIEW, STORY, EXPLORE = "view", "story", "explore"  # the URL parameter, and the modes of a lesson
CHAPTER = "chapter"  # the URL parameter, from 1
Evidences = Mapping[str, Evidence]  # by size, "stage" and "real"
Facts = Mapping[str, str]  # fields of sentences


@dataclass(frozen=True)
class Question:
    """A guess before the figure: `right(evidences)` is the index of the right answer, None if nothing was measured."""

    text: str
    answers: tuple[str, ...]
    right: Callable[[Evidences], int | None]
    reveal: str  # what the figures say, shown after a guess


@dataclass(frozen=True)
class Chapter:
    """One chapter. Texts are marked for translation; words of a role are written [text](role).

    `params` are the URL parameters of the lesson that it sets; `step`, `loop` (first and last step) and `pin` ("y:0") the
    state of the stage; `size` is the size of the strip that it speaks of.
    """

    title: str
    text: tuple[str, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    step: int = 0
    loop: tuple[int, int] | None = None
    pin: str = ""
    size: str = "stage"
    question: Question | None = None
    nudge: str = ""


@dataclass(frozen=True)
class Story:
    """The chapters of a lesson and `facts(evidences)`, the fields of their sentences."""

    chapters: Sequence[Chapter] = ()
    facts: Callable[[Evidences], Facts] = lambda evidences: {}

    def open(self) -> tuple[OpenChapter | None, list[str]]:
        """Returns the chapter that the URL opens, None in another mode, and a note if there is no such chapter."""
        if not self.chapters or mode() != STORY:
            return None, []
        at, wrong = number(len(self.chapters))
        return OpenChapter(self, at), [wrong] if wrong else []


@dataclass(frozen=True)
class OpenChapter:
    """The chapter of a story that is open, by its number from 0."""

    story: Story
    at: int

    @property
    def current(self) -> Chapter:
        return self.story.chapters[self.at]

    def panel(self, evidences: Evidences) -> dict[str, Any]:
        """Returns the chapter as data for the player."""
        chapter, facts, all_chapters = self.current, self.story.facts(evidences), self.story.chapters
        following = all_chapters[self.at + 1 : self.at + 2]
        return {
            "number": self.at,
            "count": len(all_chapters),
            "place": tr("{n} of {count}", n=self.at + 1, count=len(all_chapters)),
            "title": tr(chapter.title),
            "text": [tr(text, **facts) for text in chapter.text],
            "question": chapter.question and _question(chapter.question, evidences, facts),
            "nudge": tr(chapter.nudge, **facts),
            "back": tr("Back"),
            "next": "".join(tr("Next: {title}", title=tr(one.title)) for one in following),
            "loop": chapter.loop and list(chapter.loop),
            "pin": chapter.pin,
        }


def _question(question: Question, evidences: Evidences, facts: Facts) -> dict[str, Any] | None:
    """Returns a question as data for the player; None if nothing was measured that answers it."""
    right = question.right(evidences)
    if right is None:
        return None
    return {
        "text": tr(question.text, **facts),
        "answers": [tr(answer) for answer in question.answers],
        "right": right,
        "reveal": tr(question.reveal, **facts),
    }


NO_STORY = Story()


def mode() -> str:
    """Returns the mode in the URL: STORY, else EXPLORE."""
    return STORY if st.query_params.get(VIEW) == STORY else EXPLORE


def number(count: int) -> tuple[int, str]:
    """Returns the chapter in the URL, from 0, and a note if there is no such chapter."""
    text = st.query_params.get(CHAPTER, "1")
    if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= count:
        return int(text) - 1, ""
    return 0, tr(
        "chapter must be a number from 1 to {count}, got {text}: chapter 1 is shown",
        count=count,
        text=text[:20],
    )


def go_to_chapter(at: int, story: Story) -> None:
    """Opens a chapter of the story, from 0, if there is one. It sets the moment of the stage anew."""
    if at not in range(len(story.chapters)):
        return
    for name in address.STAGE:
        st.query_params.pop(name, None)
    st.query_params[CHAPTER] = str(at + 1)
    st.rerun()


def switch(page: str, here: str) -> None:
    """Draws the links between the modes of a lesson."""
    kept = {k: v for k, v in st.query_params.items() if k not in (VIEW, CHAPTER, *address.STAGE)}
    with st.container(key="modes", horizontal=True, gap=None, width="content"):
        for name, label in ((STORY, tr("Story")), (EXPLORE, tr("Explore"))):
            st.page_link(
                page, label=f"**{label}**" if name == here else label, query_params=kept | {VIEW: name}
            )
