"""The messages of the player: those of its JavaScript and of stage.html, for Babel and for the reader's browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import BinaryIO

from kernels import i18n
from kernels.model.row import Json

HERE = Path(__file__).parent
# The functions of texts.js and the positions of their messages, as in the Makefile.
FUNCTIONS = {"tr": None, "trn": (1, 2), "mark": None, "trParts": None, "trnParts": (1, 2)}

Message = str | tuple[str, str]


@i18n.cached(8)
def catalog() -> Json:
    """Returns what texts.js needs to show the player in the reader's language; {} for English."""
    return i18n.browser_catalog(messages()) if i18n.language() != i18n.SOURCE else {}


@cache
def messages() -> tuple[Message, ...]:
    """Returns the messages of the player. A message with plural forms is (one, many)."""
    from babel.messages.extract import extract

    files = [(path, "javascript") for path in sorted(HERE.glob("*.js"))]
    found: dict[Message, None] = {}
    for path, method in [*files, (HERE / "stage.html", html_messages)]:
        with path.open("rb") as file:
            found |= {
                message if isinstance(message, str) else (message[0], message[1]): None
                for _, message, *_ in extract(method, file, keywords=FUNCTIONS)
            }
    return tuple(found)


def html_messages(
    file: BinaryIO, keywords: object = (), comment_tags: object = (), options: object = None
) -> Iterator[tuple[int, None, str, list[str]]]:
    """Yields (line, None, message, []) for each text, aria-label and title of an HTML file. A method of Babel.

    Texts without two letters in a row, such as the names of keys, are no messages.
    """
    reader = _Texts()
    reader.feed(file.read().decode("utf-8"))
    reader.close()
    yield from ((line, None, text, []) for line, text in reader.found)


class _Texts(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("aria-label", "title"):
                self.handle_data(value or "")

    def handle_data(self, data: str) -> None:
        if re.search("[A-Za-z]{2}", data):
            self.found.append((self.getpos()[0], data.strip()))
