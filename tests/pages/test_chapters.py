"""Every chapter of every lesson: its figures are known, its claims are what the figures say, its sentences are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kernels.ladders import LADDERS
from pages._lessons import LESSONS, Lesson
from pages.parts import chapters
from pages.parts.chapters import Chapter, OpenChapter, fields, filled
from tests.helpers.chapters import WITH_STORY, every_text, open_chapter, story, unmeasured
from tests.helpers.page_runner import SHELL, heads, links, open_page, strip, texts

MAX_WORDS, MAX_SENTENCE = 90, 28
ROLE = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+")
COMPARING = re.compile(
    r"\b(faster|slower|fastest|slowest|as fast|times as|twice|half the time|most of|nearly all)\b",
    re.IGNORECASE,
)


CHAPTERS = [
    pytest.param(lesson, n, id=f"{lesson.path}-{n + 1}")
    for lesson in WITH_STORY
    for n in range(len(story(lesson).chapters))
]


def words(*shown: str) -> int:
    return sum(any(c.isalnum() for c in word) for text in shown for word in plain(text).split())


def plain(text: str) -> str:
    return ROLE.sub(r"\1", text)


def sentences(text: str) -> Iterator[str]:
    yield from SENTENCE_END.split(plain(text))


# Chapters (from 0) whose small or real shape has no recording yet: benchmarks.chapter_cases lists the cases. Their pages
# leave out what needs one.
NOT_YET = {"backward": {0, 1, 5, 6, 7}, "layers": set(range(8)), "precision": set(range(8))}


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "n"), CHAPTERS)
def test_figures_are_known_and_claims_hold(lesson: Lesson, n: int) -> None:
    chapter = story(lesson).chapters[n]
    at, panel, evidences = open_chapter(lesson, n)
    assert not at.exception
    assert panel["title"] == chapter.title
    shown = [panel["title"], *panel["text"], *([panel["question"]["text"]] if panel["question"] else [])]
    assert words(*shown) <= MAX_WORDS
    assert not re.search(r"[{}]", "".join([*shown, panel["nudge"]]))
    assert heads(at)[0]["meta"], "the stage shows nothing"
    assert chapter.step < heads(at)[0]["meta"]["steps"]
    if n in NOT_YET.get(lesson.path, ()):
        assert unmeasured(evidences), "take it out of NOT_YET"
        return
    assert len(panel["text"]) == len(chapter.text), "a sentence lacks its figure"
    assert bool(panel["nudge"]) == bool(chapter.nudge)
    if question := chapter.question:
        assert panel["question"], "nothing answers the question"
        assert panel["question"]["reveal"], "the answer lacks its figure"
        assert 0 <= panel["question"]["right"] < len(question.answers)
    assert chapter.holds(evidences) is True
    assert not unmeasured(evidences), "python -m benchmarks.chapter_cases says how to measure it"


@pytest.mark.parametrize("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_a_lesson_has_five_to_nine_chapters_with_short_sentences(lesson: Lesson) -> None:
    found = story(lesson).chapters
    assert 5 <= len(found) <= 9
    assert len({chapter.title for chapter in found}) == len(found)
    for chapter in found:
        for text in every_text(chapter):
            for sentence in sentences(text):
                assert words(sentence) <= MAX_SENTENCE, sentence
    assert any(chapter.question for chapter in found)


@pytest.mark.parametrize("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_a_sentence_that_compares_has_a_figure_or_a_check(lesson: Lesson) -> None:
    unchecked = Chapter("", ()).holds
    for chapter in story(lesson).chapters:
        for text in (*chapter.text, chapter.nudge):
            for sentence in sentences(text):
                if COMPARING.search(sentence):
                    assert fields(sentence) or chapter.holds is not unchecked, sentence


@pytest.mark.parametrize("path", ["tiling", "softmax", "attention", "fusion"])
def test_every_own_kernel_of_the_ladder_is_in_a_chapter(path: str) -> None:
    lesson = next(lesson for lesson in LESSONS if lesson.path == path)
    name = {"tiling": "gemm"}.get(path, path)
    shown = {chapter.params.get("rung") for chapter in story(lesson).chapters}
    text = " ".join(" ".join(every_text(chapter)) for chapter in story(lesson).chapters)
    for rung in LADDERS[name].rungs:
        short = rung.name.partition("/")[2]
        if not rung.library:
            assert short in shown or short.replace("-", "_") in text or short in text, short


@pytest.mark.parametrize(
    ("page", "n", "hidden"),
    [
        ("gemm/page.py", 1, {"uncoalesced", "shared-memory tile", "vectorized"}),
        ("gemm/page.py", 4, {"register tile, 1-D", "register tile, 2-D"}),
        ("conv/im2col.py", 1, {"direct"}),
        ("conv/winograd/page.py", 1, {"implicit GEMM", "Winograd 4×4, fused"}),
        ("memory/page.py", 6, {"rows padded to 33"}),
    ],
)
def test_the_strip_shows_no_time_that_a_later_chapter_asks_for(page: str, n: int, hidden: set[str]) -> None:
    explored = {bar["title"] for bar in _bars(open_page(page, **_watched(page, n), view="explore"))}
    assert hidden & explored, "the strip would show none of them anyway"
    at = open_page(page, view="story", chapter=n)
    assert not hidden & {bar["title"] for bar in _bars(at)}
    assert not any(name in size["time"]["text"] for size in _sizes(at) for name in hidden)


def test_the_strip_shows_what_an_earlier_chapter_has_compared() -> None:
    titles = {bar["title"] for bar in _bars(open_page("gemm/page.py", view="story", chapter=3))}
    assert {"naive, coalesced", "shared-memory tile"} <= titles


def _watched(page: str, n: int) -> dict[str, str]:
    lesson = next(lesson for lesson in LESSONS if lesson.page == page)
    return dict(story(lesson).chapters[n - 1].params)


def _sizes(at: Any) -> list[dict[str, Any]]:
    return strip(at)["sizes"]


def _bars(at: Any) -> list[dict[str, Any]]:
    return [bar for size in _sizes(at) for bar in size["time"]["bars"]]


def test_the_example_deck_opens_the_chapters_that_its_slides_name() -> None:
    deck = (SHELL.parents[1] / "docs" / "deck" / "index.html").read_text(encoding="utf-8")
    slides = re.findall(r'data-stage="/(\w+)\?[^"]*chapter=(\d+)[^"]*" title="Chapter: ([^"]*)"', deck)
    assert slides
    for path, n, title in slides:
        lesson = next(lesson for lesson in LESSONS if lesson.path == path)
        assert story(lesson).chapters[int(n) - 1].title.lower() == title


def test_a_sentence_without_its_figure_is_left_out() -> None:
    assert filled("It takes {real_time}.", {"real_time": "2 ms"}) == "It takes 2 ms."
    assert filled("It takes {real_time}.", {"real_time": ""}) == ""
    assert filled("It takes {real_time}.", {}) == ""
    assert filled("No figure.", {}) == "No figure."


def test_the_link_s_settings_are_used_and_the_page_says_so() -> None:
    at = open_page("gemm/page.py", view="story", chapter=3, M=16)
    assert "The link sets M=16" in texts(at)
    assert "M16" in heads(at)[0]["meta"]["key"]


def test_explore_opens_with_what_the_chapter_shows() -> None:
    at = open_page("gemm/page.py", view="story", chapter=3)
    target = links(at)["Explore"]
    assert target == {"M": "8", "N": "8", "K": "16", "rung": "shared-tile", "BM": "8", "BN": "8", "BK": "8", "view": "explore"}  # fmt: skip
    assert chapters.STORY == "story"


def test_the_last_chapter_leads_to_the_next_lesson() -> None:
    for lesson, following in zip(LESSONS, [*LESSONS[1:], None], strict=True):
        if lesson.chapters:
            last = OpenChapter(story(lesson), len(story(lesson).chapters) - 1)
            text, href = last.onward()
            expected = f"{following.path}{'?view=story' if following.chapters else ''}" if following else "."
            assert (href, following is None or text.endswith(following.title)) == (expected, True)
    panels = [
        heads(open_page("softmax/page.py", view="story", chapter=n, engine="cpu"))[0]["chapter"]
        for n in (7, 8)
    ]
    assert panels[0]["onward"] is None
    assert panels[1]["onward"] == ["Next lesson: layers", "layers?engine=cpu&view=story"]
    assert panels[1]["lesson"] == "softmax"
