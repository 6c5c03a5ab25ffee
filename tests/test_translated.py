"""Every sentence that pages and pictures show goes through gettext, and every text has one place of translation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.untranslated import untranslated

ROOT = Path(__file__).parents[1]
# Folders and files in which a text is not extracted yet: it is outside tr, or its call of tr is within an f-string.
PENDING = ("visuals/site",)


def files() -> list[Path]:
    return sorted(path for layer in ("visuals", "pages") for path in (ROOT / layer).rglob("*.py"))


def pending(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / name) for name in PENDING)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_go_through_gettext(path: Path) -> None:
    if not pending(path):
        assert untranslated(path) == []


@pytest.mark.parametrize("name", PENDING)
def test_nothing_is_pending_that_is_done(name: str) -> None:
    assert any(untranslated(path) for path in files() if path.is_relative_to(ROOT / name)), f"{name} is done"


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
