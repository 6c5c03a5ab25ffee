"""What a story calls the next lesson is the lesson that the button after its last chapter opens."""

from __future__ import annotations

import re

from pages._lessons import LESSONS
from tests.helpers.chapters import WITH_STORY, every_text, story

PATHS = {lesson.path for lesson in LESSONS}
LINK = re.compile(r"\]\(/(\w+)\)")
SENTENCE = re.compile(r"(?<=[.!?;])\s+")
NEXT = re.compile(r"\bnext\b", re.IGNORECASE)


def named(text: str) -> list[str]:
    """Returns the lessons that a text links to, in order."""
    return [path for path in LINK.findall(text) if path in PATHS]


def wrong_next(texts: list[str], following: str) -> list[str]:
    """Returns the sentences that name another lesson than `following` as the next one."""
    sentences = [sentence for text in texts for sentence in SENTENCE.split(text)]
    return [one for one in sentences if NEXT.search(one) and named(one) and named(one)[0] != following]


def test_a_sentence_on_the_next_lesson_names_the_one_that_the_button_opens() -> None:
    found = {}
    for lesson in WITH_STORY:
        after = LESSONS[LESSONS.index(lesson) + 1 :]
        following = after[0].path if after else ""
        chapters = story(lesson).chapters
        wrong = [one for chapter in chapters for one in wrong_next(every_text(chapter), following)]
        last = [path for text in every_text(chapters[-1]) for path in named(text)]
        if following and following not in last:
            wrong.append(f"the last chapter names {last}, not {following}")
        if wrong:
            found[lesson.path] = wrong
    assert not found


def test_wrong_next_finds_a_lesson_out_of_order() -> None:
    text = "Next, [precision](/precision) counts; later, [attention](/attention) needs two."
    assert wrong_next([text], "direct") == ["Next, [precision](/precision) counts;"]
    assert not wrong_next([text], "precision")
    assert not wrong_next(["[direct](/direct) reads. Next comes the store."], "im2col")
