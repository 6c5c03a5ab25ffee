"""The glossary: plain sentences, chapters that show the terms, first uses in a text, the page."""

import re

import pytest
import textstat

from pages._lessons import LESSONS
from pages.parts import glossary
from pages.parts.glossary import GROUPS, TERMS, marked
from tests.helpers.offenders import every
from tests.helpers.page_runner import heads, links, open_page, texts
from tests.pages.test_chapters import SENTENCE_END, words

MAX_WORDS, MAX_GRADE = 28, 9


@every("term", TERMS.values(), ids=lambda term: term.key)
def test_a_term_has_short_sentences_and_a_chapter_that_shows_it(term):
    assert re.fullmatch(r"\w+", term.key)
    assert words(term.text) <= MAX_WORDS and term.text.endswith(".")
    assert all(words(sentence) <= 20 for sentence in SENTENCE_END.split(term.text))
    lesson, n = term.place()
    assert lesson.path == term.lesson
    chapter = glossary.import_module(lesson.chapters).STORY.chapters[n]
    assert re.search(term.clue, glossary._source(chapter)), "no chapter of the lesson has the clue"
    assert len({len(row) for row in term.picture.split("/")}) == 1
    assert set(term.not_in) <= {lesson.path for lesson in LESSONS}


def test_the_sentences_are_plain_and_the_terms_differ():
    assert textstat.flesch_kincaid_grade(" ".join(term.text for term in TERMS.values())) <= MAX_GRADE
    assert len(TERMS) == sum(map(len, GROUPS.values())) >= 30
    forms = [form.strip() for term in TERMS.values() for form in term.words.split(",")]
    assert len(forms) == len(set(forms))


@every(
    "name",
    "batch norm, layer norm, cross-entropy, scatter, gather, atomics, gradient, optimiser, Adam, momentum, epoch, loss scaling, "
    "master weights, quantisation, activation, recompute, checkpointing".split(", "),
)
def test_a_term_of_training_is_explained(name):
    assert [key for key, term in TERMS.items() if name in term.words.split(", ")]


def test_the_first_use_of_each_term_is_marked():
    texts, terms = marked(("Warps of a block. A warp.", "Two SMs, a register."), "tiling")
    assert texts == ["[Warps](~warp) of a [block](~block). A warp.", "Two [SMs](~sm), a [register](~register)."]
    assert [term.key for term in terms] == ["warp", "block", "sm", "register"]


@pytest.mark.parametrize(
    "text",
    [
        "[a warp](workspace) and [tiling](/tiling)",  # words that have a role or lead to a lesson
        "tile_b",
        "the sms and l2",  # abbreviations are written in capitals
        "half-warp",
    ],
)
def test_other_words_are_not_marked(text):
    assert marked((text,), "tiling") == ([text], [])


def test_the_longest_term_is_marked():
    assert marked(("shared memory and bank conflicts",), "threads")[0] == [
        "[shared memory](~shared) and [bank conflicts](~conflict)"
    ]


def test_a_word_with_another_meaning_is_not_marked():
    assert marked(("a block",), "fusion") == (["a block"], [])
    assert marked(("a block",), "threads")[0] == ["a [block](~block)"]


def test_a_chapter_explains_the_terms_that_it_marks():
    chapter = heads(open_page("memory/page.py", view="story", chapter=2))[0]["chapter"]
    used = re.findall(r"\(~(\w+)\)", " ".join([*chapter["text"], chapter["nudge"]]))
    assert used and set(used) == set(chapter["terms"]) and len(used) == len(set(used))
    meaning, href = chapter["terms"]["warp"]
    assert meaning == TERMS["warp"].text and href == "glossary?term=warp"


def test_the_page_lists_every_term_with_its_chapter():
    html = texts(open_page("glossary.py"))
    for term in TERMS.values():
        lesson, n = term.place()
        assert f"<dt>{term.name}</dt>" in html
        assert f'href="{lesson.path}?view=story&chapter={n + 1}"' in html
    assert 'kt-term"' not in html


def test_a_link_to_a_term_shows_it_first():
    html = texts(open_page("glossary.py", term="bank"))
    assert html.index('class="kt-terms kt-term"') < html.index("<dt>bank</dt>") < html.index("<h2")
    assert "There is no term “&lt;b&gt;” here." in texts(open_page("glossary.py", term="<b>"))


def test_home_leads_to_the_glossary():
    assert links(open_page(None))["The terms of the field"] == {}


def test_a_term_that_a_question_uses_first_is_explained_there():
    chapter = heads(open_page("gemm/page.py", view="story", chapter=5))[0]["chapter"]
    everything = [*chapter["text"], chapter["question"]["text"], chapter["question"]["reveal"]]
    assert "[kernel](~kernel)" not in " ".join(chapter["text"])
    assert "[kernel](~kernel)" in chapter["question"]["text"]
    assert "kernel" in chapter["terms"] and " ".join(everything).count("(~kernel)") == 1
