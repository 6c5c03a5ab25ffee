"""A page in the reader's language: ?lang=, else the browser's, else English."""

import pytest
import streamlit as st

from kernels import i18n
from pages import _language
from tests.helpers.page_runner import links, open_page, open_part, texts

PO = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

msgid "History"
msgstr "Journal"

msgid "fusion"
msgstr "fusion de noyaux"
"""


@pytest.fixture(autouse=True)
def french(tmp_path, monkeypatch):
    """Adds a small French translation."""
    (tmp_path / "fr.po").write_text(PO, encoding="utf-8")
    monkeypatch.setattr(i18n, "FOLDER", tmp_path)
    _clear_caches()
    yield
    _clear_caches()


def _clear_caches():
    i18n.languages.cache_clear()
    i18n._catalog.cache_clear()
    st.cache_data.clear()


@pytest.fixture
def browser_language(monkeypatch):
    """Returns a function that sets the language that the browser asks for."""
    return lambda name: monkeypatch.setattr(type(st.context), "locale", property(lambda self: name))


def test_lang_in_the_url_chooses_the_language():
    found = links(open_page(None, lang="fr"))
    assert "Journal" in found and "fusion de noyaux" in found and "History" not in found
    assert found["Journal"] == {"lang": "fr"}  # other pages stay in this language


@pytest.mark.parametrize(
    ("wish", "title"), [("fr", "Journal"), ("fr-CA", "Journal"), ("de", "History"), (None, "History")]
)
def test_language_of_the_browser(browser_language, wish, title):
    browser_language(wish)
    found = links(open_page(None))
    assert title in found and found[title] == {}


def test_url_overrides_the_browser(browser_language):
    browser_language("fr")
    assert "History" in links(open_page(None, lang="en"))
    assert "Journal" in links(open_page(None, lang="no such language"))


def test_lesson_is_translated_too():
    at = open_page("fusion/page.py", lang="fr")
    assert "*fusion de noyaux*" in links(at) and not at.exception


def test_fragment_rerun_keeps_the_language():
    """The frame of the page does not run in it, so only the session knows the language."""

    def fragment():
        import streamlit as st

        from kernels.i18n import tr

        st.html(f"<p>{tr('History')}</p>")

    assert "Journal" in texts(open_part(fragment, {_language._KEY: "fr"}))
    assert "History" in texts(open_part(fragment))


def test_text_outside_of_sessions_is_english():
    assert _language.of_reader() == i18n.SOURCE and i18n.tr("History") == "History"
