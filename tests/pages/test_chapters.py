"""Every chapter of every lesson: its figures are known, its claims are what the figures say, its sentences are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kernels.ladders import LADDERS
from pages._lessons import LESSONS, Lesson
from pages.parts import chapters
from pages.parts.chapters import Chapter, OpenChapter, fields, filled
from tests.helpers.chapters import WITH_STORY, every_text, open_chapter, story, unmeasured
from tests.helpers.offenders import every
from tests.helpers.page_runner import SHELL, heads, links, open_page, strip, texts
from visuals.strip.facts import Evidences

MAX_WORDS, MAX_SENTENCE = 90, 28
SENTENCES = range(2, 5)  # of a chapter, beside its question and its nudge
ROLE = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+")
FULL_STOP = re.compile(r"(?<=[.!?])\s+")
COMPARED = re.compile(r"\{\w+_against_\w+\}")  # a field that is a sentence
COMPARING = re.compile(
    r"\b(faster|slower|fastest|slowest|as fast|times as|twice|half the time|most of|nearly all)\b", re.IGNORECASE
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


def count_sentences(text: str) -> int:
    return len(FULL_STOP.split(COMPARED.sub("It is faster.", plain(text))))


@cache
def opened(lesson: Lesson, n: int) -> tuple[Any, dict[str, Any], Evidences]:
    """Returns the page, the chapter's panel and the evidences. Several tests look at them."""
    return open_chapter(lesson, n)


# Chapters (from 0) whose small or real shape has no recording yet: benchmarks.chapter_cases lists the cases. Their pages
# leave out what needs one.
NOT_YET: dict[str, set[int]] = {}


@pytest.mark.parametrize(("lesson", "n"), CHAPTERS)
def test_figures_are_known_and_claims_hold(lesson: Lesson, n: int) -> None:
    chapter = story(lesson).chapters[n]
    at, panel, evidences = opened(lesson, n)
    assert not at.exception
    assert panel["title"] == chapter.title
    shown = [panel["title"], *panel["text"], *([panel["question"]["text"]] if panel["question"] else [])]
    assert words(*shown) <= MAX_WORDS
    assert not re.search(r"[{}]", "".join([*shown, panel["nudge"]]))
    if panel["nudge"]:
        assert count_sentences(panel["nudge"]) == 1
    assert heads(at)[0]["meta"], "the stage shows nothing"
    assert chapter.step < heads(at)[0]["meta"]["steps"]
    assert {*chapter.readable} <= {tensor["name"] for tensor in heads(at)[0]["meta"]["tensors"]}
    if n in NOT_YET.get(lesson.path, ()):
        assert unmeasured(evidences, chapter), "take it out of NOT_YET"
        return
    assert len(panel["text"]) == len(chapter.text), "a sentence lacks its figure"
    assert sum(map(count_sentences, panel["text"])) in SENTENCES
    assert bool(panel["nudge"]) == bool(chapter.nudge)
    if question := chapter.question:
        assert panel["question"], "nothing answers the question"
        assert panel["question"]["reveal"], "the answer lacks its figure"
        assert 0 <= panel["question"]["right"] < len(question.answers)
    assert chapter.holds(evidences) is True
    assert not unmeasured(evidences, chapter), "python -m benchmarks.chapter_cases says how to measure it"


@every("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_a_lesson_has_five_to_ten_chapters_with_short_sentences(lesson: Lesson) -> None:
    found = story(lesson).chapters
    assert 5 <= len(found) <= 10
    assert len({chapter.title for chapter in found}) == len(found)
    for chapter in found:
        for text in every_text(chapter):
            for sentence in sentences(text):
                assert words(sentence) <= MAX_SENTENCE, sentence
    assert any(chapter.question for chapter in found)


@every("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_a_chapter_has_two_to_four_sentences_and_a_nudge_of_one(lesson: Lesson) -> None:
    for chapter in story(lesson).chapters:
        assert sum(map(count_sentences, chapter.text)) in SENTENCES, chapter.title
        assert not chapter.nudge or count_sentences(chapter.nudge) == 1, chapter.nudge


def test_a_chapter_of_five_sentences_would_fail() -> None:
    assert count_sentences("One. Is it two? [Three](input) is 88.72: yes. {real_against_naive}") == 4
    assert count_sentences("{real_against_naive} {stage_against_naive}") == 2


@every("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_a_story_begins_without_jargon_asks_shows_a_real_size_and_leads_on(lesson: Lesson) -> None:
    first, *rest = story(lesson).chapters
    assert first.step <= 30 and first.params.get("order") not in ("map", "timeline", "warps", "fragments")
    asking = [n for n, chapter in enumerate(rest) if chapter.question]
    real = [n for n, chapter in enumerate(rest) if chapter.size == "real"]
    assert asking and real and asking[0] <= real[-1]
    assert re.search(r"\]\(/\w+\)", " ".join(every_text(rest[-1]))), "the last chapter names no next lesson"


@every(("lesson", "n"), CHAPTERS)
def test_a_question_has_two_to_four_answers(lesson: Lesson, n: int) -> None:
    if question := story(lesson).chapters[n].question:
        assert 2 <= len(question.answers) <= 4
        assert len(set(question.answers)) == len(question.answers)


@every("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_a_sentence_that_compares_has_a_figure_or_a_check(lesson: Lesson) -> None:
    unchecked = Chapter("", ()).holds
    for chapter in story(lesson).chapters:
        for text in (*chapter.text, chapter.nudge):
            for sentence in sentences(text):
                if COMPARING.search(sentence):
                    assert fields(sentence) or chapter.holds is not unchecked, sentence


# The ladders of a lesson. Those of the lesson on layers are too many: its page shows them one by one.
OF_LESSONS = {
    ("threads",): ("add", "stride", "banks", "layout"),
    ("tiling", "hopper"): ("gemm",),
    ("direct", "im2col", "implicit", "winograd", "fft"): ("conv",),
    ("backward",): ("conv-dinput", "conv-dweight", "conv-transpose"),
    ("softmax",): ("softmax",),
    ("attention",): ("attention",),
    ("attention_backward",): ("attention-backward",),
    ("fusion",): ("fusion",),
}


@every("paths", OF_LESSONS, ids="-".join)
def test_every_own_kernel_of_a_ladder_is_in_a_chapter(paths: tuple[str, ...]) -> None:
    lessons = [lesson for lesson in LESSONS if lesson.path in paths]
    chapters_of = [(lesson, n) for lesson in lessons for n in range(len(story(lesson).chapters))]
    staged = {opened(lesson, n)[2]["stage"].rung.name for lesson, n in chapters_of}
    text = " ".join(" ".join(every_text(story(lesson).chapters[n])) for lesson, n in chapters_of)
    words_of = set(re.findall(r"\b[\w-]+", text))
    fields_of = set(fields(text))
    for rung in (rung for name in OF_LESSONS[paths] for rung in LADDERS[name].rungs):
        if rung.library or rung.unmeasured:
            continue
        short = rung.name.partition("/")[2]
        has_figure = any(name.endswith(f"_{short.replace('-', '_')}") for name in fields_of)
        is_named = short in words_of or rung.title in text
        assert rung.name in staged or is_named or has_figure, rung.name


@pytest.mark.parametrize(
    ("page", "n", "hidden"),
    [
        ("gemm/page.py", 1, {"uncoalesced", "shared-memory tile", "vectorized"}),
        ("gemm/page.py", 5, {"vectorized", "without bank conflicts"}),
        ("attention/page.py", 4, {"flash attention", "flash attention, register tiles"}),
        ("conv/im2col.py", 1, {"direct"}),
        ("conv/winograd/page.py", 1, {"implicit GEMM", "Winograd 4×4, fused"}),
        ("memory/page.py", 7, {"rows padded to 33"}),
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


# What a lesson must make clear, in this order: a pattern that the texts or parameters of one chapter have, one after another.
CLEAR = {
    "threads": ("one thread for each element", "are a warp", "form blocks", "a grid", "divergence", "coalesced", "stride", "bank conflict", "NCHW"),
    "tiling": ("thread for each element", "sectors", "reads each value there 8 times", r"SMs in \{map_waves\} waves", r"from the L2 cache", "registers", "cp.async", "timeline", "tensor core"),
    "hopper": ("copy engine", "mbarrier", "all 32 banks", "XOR", "warpgroup", "producer", "two mbarriers", "registers", "map_waves", "box", "multicast", "of_library"),
    "direct": ("sum of the 9 products", "thread of its own", "seven loops", "real_loads"),
    "im2col": ("one column", "as one row|as rows", "matrix product", "into shared memory", "real_against_direct"),
    "implicit": ("row and column", "never exists", "copies of the next ones", "map_hbm"),
    "winograd": ("row of four inputs", "polynomial", "one product for each point", "columns first, then to the rows", "tile of 4 × 4", "error_4"),
    "fft": ("sum of waves", "butterfly", "phase", "column by column", "conj", "inverse", "other_time"),
    "choose": ("five ways", r"\{fastest\}", "workspace_im2col", "the best everywhere"),
    "softmax": ("add up to 1", "infinity", "overflows", "barrier", "exp\\(old m − new m\\)", "exchange", "into registers"),
    "attention": ("one query first", "sum \\[l\\]", "N × N is the problem", "scores of one query", "tile of Bc keys", "map_waves", "When m grows", "timeline", "tensor cores"),
    "attention_backward": ("dO", "row of \\[P\\]", "P · \\(dP − D\\)", "real_moved_naive", "stage_rows", "log-sum-exp", "queries pass by", "atomic additions", "second kernel", "tensor cores"),
    "offload": ("few cores", "same two matrices", "copies the result back", "launch\\]\\(workspace\\) before it", "end at nearly the same time", "crossing_pinned", "The copies take", "uses each number once", "copied once", "stage_kernel_limit", "Amdahl"),
    "fusion": ("four kernels in a row", "8 bytes go through memory", "stays in a register", "limits the four kernels", "trip instead of three", "map_fused", "batch norm costs nothing"),
}  # fmt: skip


@every("path", CLEAR)
def test_a_lesson_makes_clear_what_it_must_in_order(path: str) -> None:
    lesson = next(lesson for lesson in LESSONS if lesson.path == path)
    said = [
        " ".join([chapter.title, *every_text(chapter), *chapter.params.values()]) for chapter in story(lesson).chapters
    ]
    at = 0
    for pattern in CLEAR[path]:
        rest = [n for n in range(at, len(said)) if re.search(pattern, said[n], re.IGNORECASE)]
        assert rest, pattern
        at = rest[0]


def test_the_story_of_tiling_climbs_the_ladder() -> None:
    lesson = next(lesson for lesson in LESSONS if lesson.path == "tiling")
    names = [rung.name.partition("/")[2] for rung in LADDERS["gemm"].rungs]
    first, *staged = [names.index(chapter.params["rung"]) for chapter in story(lesson).chapters]
    assert names[first] == "naive"  # then its neighbours are swapped, for comparison
    assert staged == sorted(staged)


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
    assert target == {
        "M": "8",
        "N": "8",
        "K": "16",
        "rung": "shared-tile",
        "BM": "8",
        "BN": "8",
        "BK": "8",
        "view": "explore",
    }
    assert chapters.STORY == "story"


def test_the_last_chapter_leads_to_the_next_lesson() -> None:
    for lesson, following in zip(LESSONS, [*LESSONS[1:], None], strict=True):
        if lesson.chapters:
            last = OpenChapter(story(lesson), len(story(lesson).chapters) - 1)
            text, href = last.onward()
            expected = f"{following.path}{'?view=story' if following.chapters else ''}" if following else "."
            assert (href, following is None or text.endswith(following.title)) == (expected, True)
    panels = [heads(open_page("softmax/page.py", view="story", chapter=n, engine="cpu"))[0]["chapter"] for n in (8, 9)]
    assert panels[0]["onward"] is None
    assert panels[1]["onward"] == ["Next lesson: layers", "layers?engine=cpu&view=story"]
    assert panels[1]["lesson"] == "softmax"
