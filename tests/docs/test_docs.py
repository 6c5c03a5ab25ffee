"""README.md and docs/: every relative link has a file, the tables are those of the generator, the README is short."""

from __future__ import annotations

import importlib
import re

from benchmarks import tables
from pages._lessons import LESSONS
from tests.helpers.offenders import every

DOCS = tables.PAGE.parent
README = DOCS.parent / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
MAX_LINES = 150  # of the README
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_CHAPTER = re.compile(r"(\w+)\?[\w=&]*?view=story&chapter=(\d+)")
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def links(text: str) -> list[str]:
    """Returns the targets of a page's relative links and pictures, without anchors. Links in code are excluded."""
    return _LINK.findall(_CODE.sub("", text))


@every("page", PAGES, ids=lambda page: page.relative_to(README.parent).as_posix())
def test_every_relative_link_has_a_file(page):
    found = links(page.read_text(encoding="utf-8"))
    missing = [target for target in found if not (page.parent / target).exists()]
    assert not missing


def test_every_page_is_linked_from_the_readme():
    found = {(README.parent / target).resolve() for target in links(README.read_text(encoding="utf-8"))}
    assert {page.resolve() for page in PAGES[1:]} <= found


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_tables_are_those_of_the_recordings():
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.filled(page) == page, "run: python -m benchmarks.tables"


def test_every_chapter_that_is_linked_exists():
    found = [
        link for page in [*PAGES, DOCS / "deck" / "index.html"] for link in _CHAPTER.findall(page.read_text("utf-8"))
    ]
    assert found
    lessons = {lesson.path: lesson for lesson in LESSONS}
    for path, number in found:
        chapters = importlib.import_module(lessons[path].chapters).STORY.chapters
        assert 1 <= int(number) <= len(chapters), f"{path} has no chapter {number}"


def test_links_exclude_code_and_urls():
    text = "[a](x.md) ![b](y.png#top) [c](https://e.org) [d](#here) `[e](no)`\n```\n[f](no)\n```\n[`g`](../z.cu)"
    assert links(text) == ["x.md", "y.png", "../z.cu"]
