"""The difference of two texts as HTML: a unified diff with tinted and signed lines. Pure functions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from html import escape

CONTEXT = 3  # lines around a change
KINDS = {"+": "add", "-": "del", " ": "same"}
SIGNS = {"+": "+", "-": "−", " ": " "}  # so that colour is not the only sign


def lines(before: str, after: str) -> Iterator[tuple[str, str, int | None, int | None]]:
    """Yields (sign, text, its line before, its line after) of each line near a change; sign "@" between hunks."""
    hunks = difflib.SequenceMatcher(None, a := before.splitlines(), b := after.splitlines(), autojunk=False)
    for n, group in enumerate(hunks.get_grouped_opcodes(CONTEXT)):
        if n:
            yield "@", "", None, None
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from ((" ", a[i1 + k], i1 + k + 1, j1 + k + 1) for k in range(i2 - i1))
            else:
                yield from (("-", a[i], i + 1, None) for i in range(i1, i2))
                yield from (("+", b[j], None, j + 1) for j in range(j1, j2))


def counts(before: str, after: str) -> tuple[int, int]:
    """Returns (lines added, lines removed)."""
    signs = [sign for sign, *_ in lines(before, after)]
    return signs.count("+"), signs.count("-")


def html(before: str, after: str, label: str) -> str:
    """Returns the diff as a table: line numbers, sign, text. `label` names it for a screen reader."""
    rows = "".join(
        '<tr class="kt-gap"><td colspan="4">⋯</td></tr>'
        if sign == "@"
        else f'<tr class="kt-{KINDS[sign]}"><td>{i or ""}</td><td>{j or ""}</td><td>{SIGNS[sign]}</td><td>{escape(text)}</td></tr>'
        for sign, text, i, j in lines(before, after)
    )
    return (
        f'<div class="kt-scroll kt-diff" tabindex="0" role="region" aria-label="{escape(label)}">'
        f"<table>{rows}</table></div>"
    )
