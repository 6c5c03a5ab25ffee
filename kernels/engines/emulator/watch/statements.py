"""The source of a build for watching: each statement has a line number of its own, and each shared array a name in the debug information.

The debug information has one column for a line, that of its first statement: "for (int i = 0; i < n; ++i) sum += x[i];" is one place. So
the statement that follows another one on line n gets the line number n + PART, the next one n + 2 * PART. It leaves out variables of
shared memory. So a reference to each, with SHARED before its name, follows the declaration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from pygments import lexers, token

PART = 100_000
SHARED = "watched_"
_HEADERS = {"for", "while", "if", "constexpr", "switch"}
_ENDS = {"{", "}", ";", "else", "do"}  # after which a statement begins
_NO_START = {"{", "}", ";", "else"}
_BEFORE_VALUES = {"return", "=", ",", "{"}
_LINE = re.compile(r"\s*#\s*line\s+(\d+)")
_NEXT_GROUP = re.compile(r"\s*#\s*(else|elif|endif)\b")  # after lines whose "#line" may have been skipped
_NAME = re.compile(r"[A-Za-z_]\w*")
Word = tuple[int, int, str]  # row, column, text


def spread(text: str) -> str:
    """Returns a source in C++ as it is compiled for watching."""
    words = list(_words(text))
    starts: dict[int, list[int]] = {}
    for row, column in _starts(words):
        starts.setdefault(row, []).append(column)
    references: dict[int, list[tuple[int, str]]] = {}
    for row, column, more in _references(words):
        references.setdefault(row, []).insert(0, (column, more))
    out, number = [], 1
    for row, line in enumerate(text.split("\n")):
        if m := _LINE.match(line):
            number = int(m[1]) - 1
        edges = [0, *starts.get(row, ()), len(line)]
        parts = [line[start:stop] for start, stop in pairwise(edges)]
        for column, more in references.get(row, ()):
            part = sum(start < column for start in edges[1:-1])
            at = column - edges[part]
            parts[part] = f"{parts[part][:at]} {more}{parts[part][at:]}"
        out.append(parts[0])
        for n, part in enumerate(parts[1:], 1):
            out += [f"#line {n * PART + number}", part]
        if len(parts) > 1 or _NEXT_GROUP.match(line):
            out.append(f"#line {number + 1}")
        number += 1
    return "\n".join(out)


def statements(line: str) -> list[str]:
    """Returns the statements of a line, each with the header before it if that is the first."""
    edges = [0, *(start for _, start in _starts(list(_words(line)))), len(line)]
    return [line[start:stop].strip() for start, stop in pairwise(edges)]


def _starts(words: list[Word]) -> Iterator[tuple[int, int]]:
    """Yields where statements begin that follow another one or a header on a line: row and column, from 0."""
    around: list[str] = []  # the words before the brackets around; of braces, those of initial values and of lambdas
    begins, last_row, last = False, -1, ""
    for row, column, word in words:
        if begins and row == last_row and word not in _NO_START and (last, word) != ("else", "if"):
            yield row, column
        begins = False
        if word in ("(", "[") or (word == "{" and (around or last in _BEFORE_VALUES)):
            around.append(last)
        elif word in (")", "]") or (word == "}" and around):
            before = around.pop() if around else ""
            begins = word == ")" and not around and before in _HEADERS
        elif not around:
            begins = word in _ENDS
        last_row, last = row, word


def _references(words: list[Word]) -> Iterator[tuple[int, int, str]]:
    """Yields the row and column after each declaration of shared arrays and the references that follow it."""
    names: list[str] | None = None  # of the declaration that is being read
    depth, last = 0, ""
    for row, column, word in words:
        if word == "__shared__":
            names, depth = [], 0
        elif names is not None:
            if depth == 0 and word in ("[", ",", ";", "=") and _NAME.fullmatch(last):
                names.append(last)
            depth += (word in "([{") - (word in ")]}")
            if word == ";":
                yield row, column + 1, " ".join(f"auto& {SHARED}{name} = {name};" for name in names)
                names = None
        last = word


def _words(text: str) -> Iterator[Word]:
    """Yields the words of C++ code, brackets one by one, of a text in quotes only the quotes. Comments and directives are none."""
    row = column = 0
    for kind, part in lexers.get_lexer_by_name("cuda", stripnl=False).get_tokens(text):
        if kind in token.Punctuation:
            yield from ((row, column + n, character) for n, character in enumerate(part))
        elif part.strip() and kind not in token.Comment:
            yield row, column, '"' if kind in token.Literal.String else part
        lines = part.count("\n")
        row, column = row + lines, len(part) - part.rindex("\n") - 1 if lines else column + len(part)
