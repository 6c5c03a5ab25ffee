"""The player's texts: all are extracted, and a .po file gives them to the player with the scene."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from playwright.sync_api import expect

from kernels import i18n
from tests.helpers.harness import Stage
from tests.helpers.untranslated import untranslated_in_script
from tests.visuals.stage.test_routes import request as answer
from visuals import stage
from visuals.stage import texts

LOCALE = Path(__file__).parents[2] / "helpers" / "locale"
COPIED = ("Copied to {done} of {n} cell of {tensor} so far.", "Copied to {done} of {n} cells of {tensor} so far.")


@pytest.fixture
def polish(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds a small Polish translation."""
    caches = i18n.languages, i18n._catalog, texts.catalog
    monkeypatch.setattr(i18n, "FOLDER", LOCALE)
    for function in caches:
        function.cache_clear()
    yield
    for function in caches:
        function.cache_clear()


def head(message: bytes) -> dict:
    return json.loads(message[8 : 8 + int.from_bytes(message[:4], "little")])


# -- extraction ------------------------------------------------------------------------------------
def test_sentences_of_the_player_go_through_gettext():
    assert {path.name: found for path in stage.HERE.glob("*.js") if (found := untranslated_in_script(path))} == {}


def test_a_sentence_of_a_script_without_gettext_is_found(tmp_path):
    file = tmp_path / "part.js"
    file.write_text(
        '// A comment is no text.\nconst a = tr("Each thread adds {n}.", { n: count(3) });\n'
        'const b = "Each thread adds one element.", c = `${a} of the tile`, d = "one two".split(" ");\n'
        'const e = tr("A message.", { f: tr("within another") }), g = `${tr("within a template")}`;\n'
        'const h = mark("A long " + "message."), i = trn("{n} block", "{n} whole blocks", 3);\n',
        encoding="utf-8",
    )
    assert untranslated_in_script(file) == [
        (0, "not extracted: within a template"),
        (0, "not extracted: within another"),
        (3, "${a} of the tile"),
        (3, "Each thread adds one element."),
    ]


def test_messages_of_scripts_and_page_are_known():
    found = texts.messages()
    assert COPIED in found  # with plural forms
    assert {"Play", "End the loop", "whole picture", "Step back", "{cell} is never stored."} <= set(found)
    assert not [message for message in found if isinstance(message, str) and message != message.strip()]
    assert not {message[0] for message in found if isinstance(message, tuple)} & set(found)


def test_html_gives_texts_and_labels_but_no_keys():
    html = b'<p aria-label="Step" class="no text">\n  <b>Point at a cell &amp; wait.</b> <kbd>W</kbd><i title="Keys">?</i></p>'
    found = [(line, message) for line, _, message, _ in texts.html_messages(BytesIO(html))]
    assert found == [(1, "Step"), (2, "Point at a cell & wait."), (2, "Keys")]


def test_no_text_of_the_page_is_cut_by_an_element():
    """A translator needs whole sentences: no text begins or ends beside an element in its line."""
    html = (stage.HERE / "stage.html").read_text("utf-8")
    for cell in re.findall(r"<(?:dd|p)\b[^>]*>(.*?)</(?:dd|p)>", html):
        assert not re.search(r"\w[^<>]*<kbd|</kbd>[^<>]*\w", cell)


# -- the catalog -----------------------------------------------------------------------------------
@pytest.mark.usefixtures("polish")
def test_a_po_file_gives_the_player_its_texts():
    assert head(stage.message(None))["texts"] == {}
    with i18n.using("pl"):
        sent = head(stage.message(None))["texts"]
    assert sent["language"] == "pl"
    assert sent["texts"]["Play"] == "Odtwórz"
    assert sent["texts"][COPIED[0]][1] == "{tensor}: dotąd {done} z {n} komórek (2–4)."
    assert len(sent["texts"][COPIED[0]]) == 3 and len(sent["plural"]) == 200
    assert [sent["plural"][n] for n in (0, 1, 2, 5, 12, 22, 112, 122)] == list("20122121")
    assert "zdanie" not in sent["texts"].values()  # only the player's texts
    assert head(stage.message(None))["texts"] == {}


@pytest.mark.usefixtures("polish")
def test_routes_answer_in_the_language_of_the_player():
    assert answer("/stage/gif?lang=pl", method="POST")[2] == "GIF wymaga klatki."
    assert answer("/stage/gif?lang=xx", method="POST")[2] == "A GIF needs a frame."
    page = answer("/stage/standalone.html?lang=pl")[2]
    assert '<html lang="pl">' in page and "Zrobione w Kernel Theatre" in page
    assert '<html lang="en">' in answer("/stage/standalone.html")[2]


# -- the page --------------------------------------------------------------------------------------
@pytest.mark.browser
@pytest.mark.usefixtures("polish")
def test_controls_explanations_and_downloads_are_translated(bare, page, new_page, tmp_path):
    bare("view=explore&lang=pl&step=35")
    check_polish(page)
    Stage(page).do("take")
    with page.expect_download() as started:
        page.locator("[data-take=html]").click()
    offline = tmp_path / "offline.html"
    started.value.save_as(offline)
    page = new_page(offline=True)
    page.goto(offline.as_uri())
    check_polish(page)
    expect(page.get_by_text("Zrobione w Kernel Theatre")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "pl")


def check_polish(page):
    shown = Stage(page).ready()
    expect(page.locator("[data-do=play]")).to_have_attribute("aria-label", "Odtwórz")
    expect(page.locator("[data-do=take]")).to_have_text("pobierz")
    expect(page.locator(".keys")).to_contain_text("pierwszy, ostatni krok")
    expect(page.locator("[data-do=link]")).to_have_text("link")  # not translated
    expect(shown.root).to_have_attribute("lang", "pl")
    text = shown.point_at("x", 2 * 8 + 2)
    assert re.search(r"^x\[0, 2, 2\] to .*\. .*: dotąd 9 z 9 komórek\.", text), text
    assert "z 2 komórek (2–4)." in shown.point_at("x", 1)
