"""Texts in the reader's language: fields, plural forms, numbers, one cache per language, and a .po file as the source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels import i18n
from kernels.machine import ceilings, memory_levels

GERMAN = r"""
msgid ""
msgstr ""
"Content-Type: text/plain; charset=utf-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

msgid "{title} takes {time}, step {0}"
msgstr "{time} braucht {title}, Schritt {0}"

msgid "lines of {bytes} bytes"
msgstr "{bytes}-Byte-Zeilen"

msgid "{n} block"
msgid_plural "{n} blocks"
msgstr[0] "{n} Blockl"
msgstr[1] "{n} Blöcke"
"""


@pytest.fixture
def german(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "de.po").write_text(GERMAN, encoding="utf-8")
    monkeypatch.setattr(i18n, "FOLDER", tmp_path)
    caches = i18n.languages, i18n._catalog
    for function in caches:
        function.cache_clear()
    monkeypatch.setattr(i18n, "_current", lambda: "de")
    yield
    for function in caches:
        function.cache_clear()


def test_english_is_the_source_and_numbered_fields_stay() -> None:
    assert i18n.tr("{title} takes {time}, step {0}", title="A", time=3) == "A takes 3, step {0}"
    assert i18n.tr("a set {x | x > 0} and {0}") == "a set {x | x > 0} and {0}"
    assert i18n.trn("{n} block", "{n} blocks", 1) == "1 block"
    assert i18n.trn("{n} block", "{n} blocks", 1200) == "1,200 blocks"


@pytest.mark.usefixtures("german")
def test_a_po_file_is_all_that_a_translation_needs() -> None:
    assert i18n.languages() == ("en", "de")
    assert i18n.tr("{title} takes {time}, step {0}", title="A", time=3) == "3 braucht A, Schritt {0}"
    assert i18n.trn("{n} block", "{n} blocks", 1) == "1 Blockl"
    assert i18n.trn("{n} block", "{n} blocks", 1200) == "1.200 Blöcke"
    assert i18n.decimal("1,234.5") == "1.234,5"
    assert i18n.tr("no translation") == "no translation"


@pytest.mark.usefixtures("german")
def test_a_stored_text_is_translated_by_its_template() -> None:
    assert memory_levels.shown("lines of 64 bytes") == "64-Byte-Zeilen"
    assert i18n.tr_filled("old (64)", {"old ({bytes})": "lines of {bytes} bytes"}) == "64-Byte-Zeilen"
    assert i18n.tr_filled("old (64) [x]", {"old ({bytes})": "lines of {bytes} bytes"}) == "old (64) [x]"
    assert ceilings.shown("FMA kernel, 8 chains a thread, no tensor cores") == (
        "FMA kernel, 8 chains per thread, no tensor cores"
    )


@pytest.mark.usefixtures("german")
@pytest.mark.parametrize(
    ("wished", "best"), [("de-AT", "de"), ("de", "de"), ("fr-FR", "en"), (None, "en"), ("../x", "en")]
)
def test_the_language_is_the_nearest_that_exists(wished: str | None, best: str) -> None:
    assert i18n.best_language(wished) == best


def test_a_cache_keeps_languages_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    @i18n.cached(4)
    def text(n: int) -> str:
        calls.append(n)
        return f"{i18n.language()} {n}"

    assert (text(1), text(1)) == ("en 1", "en 1")
    monkeypatch.setattr(i18n, "_current", lambda: "de")
    assert (text(1), text(1)) == ("de 1", "de 1")
    assert calls == [1, 1]
