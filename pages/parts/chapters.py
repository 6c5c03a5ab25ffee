"""A lesson in chapters. Each sets the stage and has two to four sentences about it; some have a guess before the figure.

A chapter is data. Figures in its sentences are fields, filled from the same evidence that the strip shows
(visuals.strip.facts). The parameters that a chapter sets are in effect unless the URL sets them otherwise.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlencode

import streamlit as st

from kernels.i18n import mark, tr
from kernels.model.row import Json
from pages import _language
from pages._lessons import LESSONS, Lesson
from pages.parts import address, glossary, query
from pages.parts.address import CHAPTER, EXPLORE, STORY, VIEW
from pages.parts.every_step import STEPS
from visuals.strip import facts as figures
from visuals.strip.facts import Evidences, Facts, OwnEvidences, Right

PAGE_WIDE = ("embed", "embed_options", "engine", "caches", "present", "hide")  # kept from chapter to chapter
PLAY = "play"  # the URL parameter: 1 starts the animation of the chapter at once
FASTER_SLOWER = (mark("Faster"), mark("Slower"), mark("The same"))  # answers for figures.against
LIMITS = (
    mark("Launch overhead"),
    mark("Memory bandwidth"),
    mark("Arithmetic"),
    mark("None of these"),
)  # figures.limited_by
_LEFT = "_left_chapters"  # in the session: the parameter of the chapter that was open last, by page
_FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")
_RUNG = re.compile(r"\{\w+?_(?:against|time)_(\w+)\}")  # in a field of visuals.strip.facts


@dataclass(frozen=True)
class Question:
    """A guess before the figure. `right(evidences)` is the index of the right answer, None if nothing was measured."""

    text: str
    answers: tuple[str, ...]
    right: Right
    reveal: str  # what the figures say, shown after a guess
    compared: tuple[str, ...] = ()  # the rungs whose times are the answer, beside that on the stage
    # What gives the answer away beside the times, and is hidden until the guess: "counts" (in the caption, in the readings,
    # beside the kernel), "memory" (of the strip).
    hides: tuple[str, ...] = ()


def faster(text: str, rung: str, size: str, reveal: str, of: str = "") -> Question:
    """Returns the question whether the kernel is faster than a rung at a size; `of` as in figures.against."""
    compared = tuple(filter(None, (rung, of)))
    return Question(text, FASTER_SLOWER, figures.against(rung, size, of), reveal, compared)


def nothing_limits(size: str) -> Callable[[OwnEvidences], bool | None]:
    """Returns a check of a claim: at this size no share of the strip limits the kernel. None without figures."""

    def holds(evidences: Evidences) -> bool | None:
        right = figures.limited_by(size)(evidences)
        return None if right is None else right == len(LIMITS) - 1

    return holds


@dataclass(frozen=True)
class Chapter:
    """One chapter. Texts are marked for translation; words of a role are written [text](role), figures {field}.

    `params` are the URL parameters of the lesson that it sets; `step`, `loop` (first and last step) and `pin` ("y:0") the
    state of the stage. `readable` names the tensors whose numbers its sentences speak of: they become large enough to read
    before other cells grow. `size` is the size of the strip that it speaks of. `holds(evidences)` is whether the claims of its
    sentences are what the figures say, None where nothing was measured.
    """

    title: str
    text: tuple[str, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    step: int = 0
    loop: tuple[int, int] | None = None
    pin: str = ""
    readable: tuple[str, ...] = ()
    size: str = "stage"
    question: Question | None = None
    nudge: str = ""
    holds: Callable[[OwnEvidences], bool | None] = lambda evidences: True

    @property
    def texts(self) -> tuple[str, ...]:
        """Returns every text, with its fields unfilled."""
        question = self.question
        of_question = (question.text, *question.answers, question.reveal) if question else ()
        return (self.title, *self.text, *of_question, self.nudge)

    @cached_property
    def rungs(self) -> frozenset[str]:
        """Returns the short names of the rungs that it puts on the stage, asks for, or has figures of."""
        compared = map(figures.short, self.question.compared if self.question else ())
        staged = figures.short(f"/{self.params.get('rung', '')}")
        return frozenset([*compared, staged, *_RUNG.findall(" ".join(self.texts))])


def no_facts(evidences: OwnEvidences) -> Facts:
    return {}


@dataclass(frozen=True)
class Story:
    """The chapters of a lesson. `facts(evidences)` are the fields of their sentences that only this lesson has, `common`
    those that all lessons with kernels of one ladder on the stage have."""

    chapters: Sequence[Chapter] = ()
    facts: Callable[[OwnEvidences], Facts] = no_facts
    common: Callable[[OwnEvidences], Facts] = figures.facts

    def open(self) -> OpenChapter | None:
        """Returns the chapter that the URL opens, whose parameters are in effect from now on; None in another mode."""
        query.keep_mode(str(id(self)))
        chapter = self._chapter_of_url()
        query.set_by_chapter(chapter.current.params if chapter else {})
        return chapter

    def _chapter_of_url(self) -> OpenChapter | None:
        if not self.chapters or not query.is_story():
            return None
        at, wrong = number(len(self.chapters))
        return OpenChapter(self, at, (wrong,) if wrong else ())

    def texts(self) -> Iterator[str]:
        """Yields every text of all chapters, translated, with its fields unfilled."""
        for chapter in self.chapters:
            yield from map(tr, chapter.texts)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Returns the names of the parameters that any chapter sets."""
        return frozenset(name for chapter in self.chapters for name in chapter.params)


@dataclass(frozen=True)
class OpenChapter:
    """The chapter of a story that is open, by its number from 0. `wrong`: what is wrong with its number in the URL."""

    story: Story
    at: int
    wrong: tuple[str, ...] = ()

    @property
    def current(self) -> Chapter:
        return self.story.chapters[self.at]

    @cached_property
    def lesson(self) -> Lesson | None:
        """Returns the lesson whose story it is, None for a story of no lesson."""
        modules = ((lesson, sys.modules.get(lesson.chapters)) for lesson in LESSONS)
        return next((lesson for lesson, module in modules if getattr(module, "STORY", None) is self.story), None)

    @cached_property
    def to_come(self) -> frozenset[str]:
        """Returns the short names of the rungs that a later chapter has, and none so far."""
        all_chapters = [chapter.rungs for chapter in self.story.chapters]
        return frozenset().union(*all_chapters[self.at + 1 :]).difference(*all_chapters[: self.at + 1])

    def onward(self) -> list[str]:
        """Returns the text and the URL of the link after the last chapter: to the next lesson, after the last one home."""
        rest = LESSONS[LESSONS.index(self.lesson) + 1 :] if self.lesson else ()
        if not rest:
            return [tr("All lessons"), _href(".", {})]
        text = tr("Next lesson: {title}", title=tr(rest[0].title))
        return [text, _href(rest[0].path, _kept() | ({VIEW: STORY} if rest[0].chapters else {}))]

    def notes(self) -> list[str]:
        """Returns what the reader must know of the URL: a chapter that does not exist, parameters against the chapter's."""
        own = self.current.params
        against = {
            name: value
            for name, value in st.query_params.items()
            if name in self.story.parameters and own.get(name) != value
        }
        if not against:
            return list(self.wrong)
        values = ", ".join(f"{name}={value[:20]}" for name, value in against.items())
        note = tr("The link sets {values}. The chapter was written for other settings.", values=values)
        return [*self.wrong, note]

    def panel(self, evidences: OwnEvidences, counting: bool = False) -> Json:
        """Returns the chapter as data for the player. `counting`: figures of its sentences are being counted."""
        chapter, all_chapters = self.current, self.story.chapters
        facts = {**self.story.common(evidences), **self.story.facts(evidences)}
        following = all_chapters[self.at + 1 : self.at + 2]
        text = list(filter(None, (filled(text, facts) for text in chapter.text)))
        question = (chapter.question and _question(chapter.question, evidences, facts, counting)) or None
        of_question = [question["text"], question["reveal"]] if question else []
        everything = [*text, *of_question, filled(chapter.nudge, facts)]
        (*text, nudge), terms = glossary.marked(everything, self.lesson.path if self.lesson else "")
        if question:
            *text, question["text"], question["reveal"] = text
        return {
            "lesson": self.lesson.path if self.lesson else "",
            "number": self.at,
            "count": len(all_chapters),
            "place": tr("{n} of {count}", n=self.at + 1, count=len(all_chapters)),
            "title": tr(chapter.title),
            "text": text,
            "terms": {term.key: [tr(term.text), _href(glossary.PATH, {glossary.PARAM: term.key})] for term in terms},
            "glossary": tr("Glossary"),
            "question": question,
            "nudge": nudge,
            "back": tr("Back"),
            "next": "".join(tr("Next: {title}", title=tr(one.title)) for one in following),
            "onward": None if following else self.onward(),
            "loop": chapter.loop and list(chapter.loop),
            "pin": chapter.pin,
            "readable": list(chapter.readable),
            "clears": sorted({*address.STAGE, PLAY, STEPS, *self.story.parameters}),
        }


def _kept() -> dict[str, str]:
    """Returns the parameters of the URL that stay from chapter to chapter and from lesson to lesson."""
    return {name: st.query_params[name] for name in PAGE_WIDE if name in st.query_params} | _language.kept()


def _href(path: str, params: Mapping[str, str]) -> str:
    """Returns a link to another page of the app, relative to this one. In a frame it stays a page for frames."""
    framed = {"embed": "true"} if st.context.is_embedded else {}
    everything = urlencode({**params, **_language.kept(), **framed})
    return f"{path}?{everything}" if everything else path


def filled(text: str, facts: Facts) -> str:
    """Returns a sentence with its figures; "" if one of them was not measured."""
    return tr(text, **facts) if all(facts.get(name) for name in fields(text)) else ""


def fields(text: str) -> list[str]:
    """Returns the names of the figures in a sentence."""
    return _FIELD.findall(text)


def _question(question: Question, evidences: Evidences, facts: Facts, counting: bool) -> Json | None:
    """Returns a question as data for the player; None if nothing was measured that answers it.

    One for counts is asked while they are made, its right answer None: later the stage would have shown it."""
    right, text = question.right(evidences), filled(question.text, facts)
    comes = counting and "counts" in question.hides
    if not text or (right is None and not comes):
        return None
    return {
        "text": text,
        "answers": [filled(answer, facts) for answer in question.answers],
        "right": right,
        "reveal": filled(question.reveal, facts),
        "hides": list(question.hides),
    }


def number(count: int) -> tuple[int, str]:
    """Returns the chapter in the URL, from 0, and a note if there is no such chapter."""
    text = st.query_params.get(CHAPTER, "1")
    if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= count:
        return int(text) - 1, ""
    return 0, tr(
        "chapter must be a number from 1 to {count}, got {text}: chapter 1 is shown", count=count, text=text[:20]
    )


def switch(page: str, chapter: OpenChapter | None) -> None:
    """Draws the links between the modes of a lesson that has a story. Explore opens with what the chapter sets, the story with
    the chapter that was left."""
    if not any(lesson.page == page and lesson.chapters for lesson in LESSONS):
        return
    wide, left = _kept(), st.session_state.setdefault(_LEFT, {})
    if chapter:
        left[page] = {CHAPTER: str(chapter.at + 1)} if chapter.at else {}
    left_out = (VIEW, CHAPTER, *address.STAGE)
    settings = {name: value for name, value in query.url_values().items() if name not in left_out}
    modes = (
        (STORY, tr("Story"), wide | {VIEW: STORY} | left.get(page, {})),
        (EXPLORE, tr("Explore"), settings | {VIEW: EXPLORE}),
    )
    here = STORY if chapter else EXPLORE

    with st.container(key="modes", horizontal=True, gap=None, width="content"):
        for name, label, params in modes:
            st.page_link(page, label=f"**{label}**" if name == here else label, query_params=params)
