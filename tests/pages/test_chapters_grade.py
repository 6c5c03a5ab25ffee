"""The sentences of all chapters read easily: the Flesch-Kincaid grade of each lesson is 9 or lower."""

import textstat

from pages._lessons import Lesson
from pages.parts.chapters import fields
from tests.helpers.chapters import WITH_STORY, every_text, story
from tests.helpers.offenders import every
from tests.pages.test_chapters import plain

MAX_GRADE = 9


def graded(texts: list[str]) -> float:
    """Returns the grade of the sentences among the texts, each field read as a number."""
    shown = [text.format(**dict.fromkeys(fields(text), "8")) for text in map(plain, texts)]
    return textstat.flesch_kincaid_grade(" ".join(text for text in shown if text.endswith((".", "?", "!"))))


@every("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_a_story_reads_easily(lesson: Lesson) -> None:
    assert graded([text for chapter in story(lesson).chapters for text in every_text(chapter)]) <= MAX_GRADE


def test_a_hard_sentence_would_fail() -> None:
    hard = "Simultaneously executing multidimensional convolutional transformations necessitates considerable architectural sophistication."
    assert graded([hard]) > MAX_GRADE
