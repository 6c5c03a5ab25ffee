"""Every sentence that pages and pictures show goes through gettext, and every text has one place of translation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.untranslated import untranslated

ROOT = Path(__file__).parents[1]


def files() -> list[Path]:
    return sorted(path for layer in ("visuals", "pages") for path in (ROOT / layer).rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_go_through_gettext(path: Path) -> None:
    assert untranslated(path) == []


def test_a_sentence_without_gettext_is_found(tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    file.write_text(
        '"""A docstring is no text."""\n'
        'A = tr("Each thread adds one element.")\n'
        'B = "Each thread adds one element."\n'
        'C = f"<b>{A}</b> of the tile"\n'
        'D = {"first max": 1}["first max"]\n'
        'raise ValueError("the shape must fit")\n'
        "E = f\"{A}: {tr('stale')} {tr(A)}\"\n",
        encoding="utf-8",
    )
    assert untranslated(file) == [
        (3, "Each thread adds one element."),
        (4, "</b> of the tile"),
        (7, "within an f-string: stale"),
    ]
