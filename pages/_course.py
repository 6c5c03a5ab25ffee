"""The course: how long each lesson takes, what it builds on, which of its chapters this browser has shown.

The browser keeps the chapters that were open (visuals/stage/chapter.js). Nothing about them is sent to the server.
"""

from __future__ import annotations

from importlib import import_module
from math import ceil
from pathlib import Path

from kernels.i18n import cached, mark, tr, trn
from pages._lessons import LESSONS, LEVELS, Lesson
from pages.parts.chapters import Story
from pages.parts.component import component

SCRIPT = Path(__file__).with_name("_progress.js")
WORDS_A_MINUTE = 150
RULE = mark("Minutes: one for each chapter, and one for every {words} words in them.")


def story(lesson: Lesson) -> Story:
    """Returns the chapters of a lesson, none if it has no story."""
    return import_module(lesson.chapters).STORY if lesson.chapters else Story()


@cached(64)
def minutes(lesson: Lesson) -> int:
    """Returns how many minutes a lesson takes, by RULE; 0 without chapters."""
    found = story(lesson)
    words = sum(len(text.split()) for text in found.texts())
    return ceil(len(found.chapters) + words / WORDS_A_MINUTE)


def after(lesson: Lesson) -> str:
    """Returns which lessons come before; "" for the first."""
    titles = ", ".join(tr(one.title) for one in LESSONS if one.path in lesson.after)
    return tr("after {lessons}", lessons=titles) if titles else ""


def progress(lesson: Lesson) -> None:
    """Draws the line under a lesson: "3 of 8 chapters · 12 min · beginner · after threads"."""
    count = len(story(lesson).chapters)
    time = tr("{n} min", n=minutes(lesson)) if count else ""
    data = {
        "path": lesson.path,
        "count": count,
        "none": trn("{n} chapter", "{n} chapters", count) if count else "",
        "some": trn("{seen} of {n} chapter", "{seen} of {n} chapters", count, seen="{seen}"),
        "rest": [text for text in (time, tr(LEVELS[lesson.level]), after(lesson)) if text],
    }
    component("progress", SCRIPT)(key=f"progress_{lesson.path}", data=data, height="content")
