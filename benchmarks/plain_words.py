"""How plain the sentences of the pages are, in Chromium: python -m benchmarks.plain_words [--url URL] [PATH ...]

Opens every page (or those of the paths), of the app started here or of one that already runs at URL. Prints for each
page the words outside folded details, the longest sentence, and the Flesch-Kincaid grade of the captions of its stage
and of its other sentences. Ends with status 1 if a sentence has more than 28 words or a grade is above 9.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import textstat
from playwright.sync_api import Browser, Page

from benchmarks import report
from benchmarks.browser import chromium, new_page
from benchmarks.report import Column
from pages._lessons import LESSONS
from tests.helpers.harness import TIMEOUT_MS, serving

PATHS = ("", *(f"{lesson.path}?view=explore" for lesson in LESSONS), "history", "glossary")
MAX_WORDS, MAX_GRADE = 28, 9.0
STILL_S, WAIT_S = 3, 60
SENTENCE_END = re.compile(r"[\n\t]+| · |(?<=[.!?])\s+(?![a-z])|, (?=\d+ [^\d\s])")

# The text of the page without the bar, the stages, code, charts and what is folded: a line for each block.
VISIBLE_TEXT = """() => {
  const style = document.head.appendChild(document.createElement("style"));
  style.textContent = `.st-key-nav, pre, svg, .js-plotly-plot, [data-testid="stStatusWidget"],
    details:not([open]) > :not(summary) { display: none !important; }`;
  const main = document.querySelector('[data-testid="stMain"]');
  const hosts = [...main.querySelectorAll("*")].filter((element) => element.shadowRoot);
  const shown = hosts.map((host) => host.style.display);
  for (const host of hosts) host.style.display = "none";
  const text = main.innerText;
  hosts.forEach((host, n) => { host.style.display = shown[n]; });
  style.remove();
  return text;
}"""
# The captions of all steps of all stages except the previews.
CAPTIONS = """() => [...document.querySelectorAll('[data-testid="stMain"] *')].flatMap((host) => {
  const player = host.shadowRoot?.querySelector(".stage:not(.still)")?.player;
  if (!player?.scene) return [];
  return Array.from({ length: player.scene.steps }, (_, step) => player.captionOf(step).map(({ text }) => text).join(""));
})"""

COLUMNS = (
    Column("page", "", "page"),
    Column("words", "d", "words"),
    Column("captions", "d", "captions"),
    Column("longest", "d", "longest"),
    Column("grade of captions", ".1f", "caption_grade"),
    Column("grade of cards", ".1f", "card_grade"),
)


def words(text: str) -> int:
    return sum(any(c.isalnum() for c in word) for word in text.split())


def sentences(lines: Iterable[str]) -> list[str]:
    """Returns the sentences of the lines, each once. The items of a line with dots or numbers are not one sentence."""
    pieces = (piece for line in lines for piece in SENTENCE_END.split(line))
    return list(dict.fromkeys(piece.strip() for piece in pieces if piece.strip()))


def grade(found: Iterable[str]) -> float | None:
    """Returns the Flesch-Kincaid grade of the pieces that end as a sentence does; None if there are none."""
    text = " ".join(piece for piece in found if piece[-1] in ".!?" and words(piece) > 2)
    return textstat.flesch_kincaid_grade(text) if text else None


def measured(page: Page, url: str, path: str) -> dict:
    page.goto(f"{url}/{path}")
    text = settled_text(page)
    captions, cards = sentences(page.evaluate(CAPTIONS)), sentences([text])
    longest = max([*captions, *cards], key=words)
    return {
        "page": path or "home",
        "words": words(text),
        "captions": len(captions),
        "longest": words(longest),
        "text": longest,
        "caption_grade": grade(captions),
        "card_grade": grade(cards),
    }


def settled_text(page: Page) -> str:
    """Returns the text of the page once it has not changed for a while: charts and tables are drawn late."""
    page.locator("h1.kt-title").first.wait_for()
    text, still = page.evaluate(VISIBLE_TEXT), 0
    for _ in range(WAIT_S):
        page.wait_for_timeout(1000)
        before, text = text, page.evaluate(VISIBLE_TEXT)
        still = still + 1 if text == before else 0
        if still == STILL_S:
            return text
    raise TimeoutError(f"{page.url} still changes after {WAIT_S} s")


def is_plain(row: report.Row) -> bool:
    grades = (row["caption_grade"], row["card_grade"])
    return row["longest"] <= MAX_WORDS and all(g is None or g <= MAX_GRADE for g in grades)


@contextmanager
def app(url: str | None) -> Iterator[str]:
    """Yields the URL of the app: the one given, or of a server started here."""
    if url:
        yield url.rstrip("/")
        return
    with serving() as server:
        yield server.url


def rows(browser: Browser, url: str, paths: Iterable[str]) -> Iterator[dict]:
    page = new_page(browser)
    page.set_default_timeout(TIMEOUT_MS)
    for path in paths:
        yield measured(page, url, path)


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("paths", nargs="*", default=PATHS)
    parser.add_argument("--url")
    options = parser.parse_args()
    with app(options.url) as url, chromium() as browser:
        found = list(rows(browser, url, options.paths))
    print(report.table(found, COLUMNS, below=lambda row: f"    {row['text']}"))
    return 0 if all(map(is_plain, found)) else 1


if __name__ == "__main__":
    sys.exit(main())
