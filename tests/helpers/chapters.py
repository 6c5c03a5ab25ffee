"""Opens the chapters of lessons, with what is known of the kernel on the stage."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from unittest import mock

from kernels.cases import Case
from pages._lessons import LESSONS, Lesson
from pages.parts.chapters import Chapter, OpenChapter, Story, fields
from tests.helpers.page_runner import heads, open_page
from visuals.strip.facts import Evidences
from visuals.training.evidence import RECORDED, StepEvidence

WITH_STORY = [lesson for lesson in LESSONS if lesson.chapters]


def story(lesson: Lesson) -> Story:
    return import_module(lesson.chapters).STORY


def every_text(chapter: Chapter) -> list[str]:
    question = chapter.question
    of_question = (question.text, question.reveal, *question.answers) if question else ()
    return [*chapter.text, chapter.nudge, *of_question]


def open_chapter(lesson: Lesson, n: int) -> tuple[Any, dict[str, Any], Evidences]:
    """Returns the page at a chapter, the chapter's panel, and the evidences that it was filled from.

    Between the first and the last chapter the page is its stage alone: what is below it takes most of the time.
    """
    seen: list[Mapping] = []
    panel = OpenChapter.panel

    def watched(self: OpenChapter, found: Evidences, *counting: bool) -> Any:
        seen.append(found)
        return panel(self, found, *counting)

    with mock.patch.object(OpenChapter, "panel", watched):
        between = 0 < n < len(story(lesson).chapters) - 1
        at = open_page(lesson.page, view="story", chapter=n + 1, **({"present": "1"} if between else {}))
        while _counts_are_to_come(story(lesson).chapters[n], seen[-1]):
            time.sleep(0.1)
            at.run()
    return at, heads(at)[0]["chapter"], seen[-1]


def _counts_are_to_come(chapter: Chapter, evidences: Evidences) -> bool:
    """Returns whether the chapter speaks of sectors that the emulator has not counted yet."""
    names = [name for text in every_text(chapter) for name in fields(text)]
    return "stage_sectors" in names and evidences["stage"].totals is None


def unmeasured(evidences: Evidences, chapter: Chapter | None = None) -> Case | str | None:
    """Returns what is on the stage if no recording has it; of a training step only if the chapter has a figure of it. A lesson
    around kernels has figures of its own: predicted ones are badged so."""
    found = evidences["stage"]
    if not isinstance(found, StepEvidence) and not hasattr(found, "rung"):
        return None
    if isinstance(found, StepEvidence):
        names = {name for text in every_text(chapter) for name in fields(text)} if chapter else set()
        recorded = {f"stage_{name}" for name in RECORDED}
        return found.title if names & recorded and not found.record else None
    return None if found.row else Case(found.rung.name, found.shape, found.tiles)
