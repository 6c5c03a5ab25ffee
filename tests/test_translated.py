"""Every sentence that pages and pictures show goes through gettext, and every text has one place of translation."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.untranslated import untranslated

ROOT = Path(__file__).parents[1]


def files() -> list[Path]:
    """All but the table of patches, which no page shows."""
    every = sorted(path for layer in ("visuals", "pages") for path in (ROOT / layer).rglob("*.py"))
    return [path for path in every if path.parent.name != "streamlit_patches"]


def test_sentences_go_through_gettext() -> None:
    found = {path.relative_to(ROOT).as_posix(): untranslated(path) for path in files()}
    assert {path: sentences for path, sentences in found.items() if sentences} == {}


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
