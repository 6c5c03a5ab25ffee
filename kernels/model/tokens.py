"""The tokens of CUDA C++: the parts of a source that decide what is compiled, without comments, layout and `#line`."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Operators of several characters, the longest first (C++20, lex.operators); any other sign is one character.
_OPERATORS = (
    "<<<", ">>>", "<=>", "->*", "...", "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--",
    "->", "::", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", ".*",
)  # fmt: skip
_TOKEN = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)"
    r"|(?P<raw>(?:u8|[uUL])?R\"(?P<end>[^\s()\\]{0,16})\(.*?\)(?P=end)\")"
    r"|(?P<text>(?:u8|[uUL])?\"(?:\\.|[^\"\\\n])*\"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')"
    r"|(?P<number>\.?\d(?:'\w|[eEpP][+-]|[\w.])*)"
    r"|(?P<word>\w+)"
    r"|(?P<space>(?:[^\S\n]|\\\n)+)"
    r"|(?P<newline>\n)"
    rf"|(?P<sign>{'|'.join(map(re.escape, _OPERATORS))}|.)",
    re.DOTALL,
)


def tokens(source: str) -> str:
    """Returns the tokens of a source, separated by spaces. A directive (#define, #pragma ...) is a separate line; #line
    is left out."""
    return "\n".join(" ".join(line) for line in _lines(source) if line)


def _lines(source: str) -> Iterator[list[str]]:
    """Yields the tokens of each directive, and of the code between two."""
    code: list[str] = []
    directive: list[str] | None = None
    for m in _TOKEN.finditer(f"{source}\n"):
        if m["space"] or m["newline"] or m["comment"]:
            if directive is not None and m["newline"]:
                if directive[1:2] != ["line"]:
                    yield code
                    yield directive
                    code = []
                directive = None
        elif directive is not None:
            if m[0] == "(" and directive[1:-1] == ["define"] and source[: m.start()].endswith(directive[-1]):
                directive[-1] += "("  # a macro with arguments; after a space the bracket is a part of its value
            else:
                directive.append(m[0])
        elif m[0] == "#" and _begins_line(source, m.start()):
            directive = ["#"]
        else:
            code.append(m[0])
    yield code


def _begins_line(source: str, position: int) -> bool:
    """Returns whether there is only space before a position in its line."""
    return not source[source.rfind("\n", 0, position) + 1 : position].strip()
