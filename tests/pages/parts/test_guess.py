"""Until a question is answered, nothing on the page gives its answer away: the cards' line, the data for the player."""

from pages import _lessons
from pages.conv import im2col_chapters
from pages.conv.choose import chapters as choose_chapters
from pages.memory import chapters as memory_chapters
from tests.helpers.page_runner import heads, links, open_page, strip, texts

LINE = 'class="kt-guess"'


def chapters_of(lesson):
    return __import__(lesson.chapters, fromlist=["STORY"]).STORY.chapters


def blocks(block):
    for child in getattr(block, "children", {}).values():
        if hasattr(child, "children"):
            yield child
            yield from blocks(child)


def test_every_lesson_has_the_line_over_its_cards_exactly_where_a_chapter_asks():
    """One chapter with a question and one without, of each lesson."""
    wrong = []
    for lesson in (one for one in _lessons.LESSONS if one.chapters):
        all_ = chapters_of(lesson)
        asking = [bool(chapter.question) for chapter in all_]
        for at in {asking.index(value) for value in asking}:
            page = open_page(lesson.page, view="story", chapter=str(at + 1))
            asks = bool(heads(page)[0]["chapter"]["question"])
            has_cards = any(block.proto.id.endswith("-cards") for block in blocks(page.main))
            if (LINE in texts(page)) != (asks and has_cards):
                wrong.append((lesson.path, at + 1, asks, has_cards))
    assert wrong == []


def test_explore_has_no_line():
    assert LINE not in texts(open_page("conv/im2col.py", view="explore"))
    assert LINE not in texts(open_page("conv/im2col.py", view="run"))


def questions_of(chapters):
    return [(n, chapter.question) for n, chapter in enumerate(chapters, 1) if chapter.question]


def test_questions_for_counts_hide_the_counts():
    by_number = dict(questions_of(memory_chapters.STORY.chapters))
    assert {n for n, question in by_number.items() if "counts" in question.hides} == {4, 5}
    for n in (4, 5):
        question = heads(open_page("memory/page.py", view="story", chapter=str(n)))[0]["chapter"]["question"]
        assert question["hides"] == ["counts"]  # also while the sectors are counted


def test_a_question_for_memory_hides_the_memory_of_the_strip():
    numbers = [n for n, question in questions_of(choose_chapters.STORY.chapters) if "memory" in question.hides]
    (n,) = numbers
    page = open_page("conv/choose/page.py", view="story", chapter=str(n))
    assert all(size["memory"]["secret"] for size in strip(page)["sizes"])
    other = open_page("conv/choose/page.py", view="story", chapter=str(n + 1))
    assert not any(size["memory"].get("secret") for size in strip(other)["sizes"])


def test_a_story_about_numbers_has_no_strip_about_instructions():
    for chapter, has in ((1, False), (4, False), (5, True), (7, False), (8, True)):
        page = open_page("precision/page.py", view="story", chapter=str(chapter))
        assert bool(strip(page)) == has, chapter


def test_explore_leads_back_to_the_chapter_that_was_left():
    at = open_page("conv/im2col.py", view="story", chapter="4")
    assert len(im2col_chapters.STORY.chapters) > 4
    at.query_params.clear()
    at.query_params["view"] = "explore"
    at.run()
    assert links(at)["Story"] == {"view": "story", "chapter": "4"}
