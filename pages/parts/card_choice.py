"""The card that recordings are shown from: the URL's, else each ladder's default one. A control where there are several."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kernels import records
from kernels.i18n import tr
from kernels.records import cards, files
from kernels.records.cards import PARAM, Card
from pages.parts.address import quoted
from pages.parts.query import note_on, rerun, write
from pages.parts.text import note, quiet

_PREFERRED = "_card_of_lesson"  # the key of the card that this page shows if the URL names none
_OF_PAGE = "_card_of_page"  # the choice in the last run of the whole page: a fragment draws only a part of it


def of_reader() -> str:
    """Returns the key of the card in the URL of the session that runs in this thread, else that which its page prefers; ""
    without one or outside of sessions."""
    return (_of_url() or st.session_state.get(_PREFERRED, "")) if _can_choose() else ""


def _can_choose() -> bool:
    return len(records.known_cards()) > 1 and get_script_run_ctx(suppress_warning=True) is not None


def _of_url() -> str:
    """Returns the key of the card in the URL; "" if it names none that is known."""
    key = st.query_params.get(PARAM, "")
    return key if key in records.known_cards() else ""


def prefer(card: Card | None) -> None:
    """Shows this page from a card unless the URL names another one: its kernels have rows of few cards. Call it before the
    page reads any row."""
    st.session_state[_PREFERRED] = card.key if card else ""
    st.session_state[_OF_PAGE] = of_reader()


def begin_page() -> None:
    """Keeps the choice that the whole page is drawn with. A URL with an unknown card gets a note."""
    st.session_state.pop(_PREFERRED, None)
    st.session_state[_OF_PAGE] = of_reader()
    wish, known = st.query_params.get(PARAM), records.known_cards()
    if wish and wish not in known:
        fields = {"known": ", ".join(known), "card": quoted(wish)}
        note_on(PARAM, [tr("card must be one of {known}; got {card}: each lesson shows its usual card", **fields)])


def kept() -> dict[str, str]:
    """Returns the URL parameter that links to other pages keep."""
    wish = _of_url() if _can_choose() else ""
    return {PARAM: wish} if wish else {}


def control(*ladders: str) -> None:
    """Draws the choice between the cards that have rows of these ladders; nothing if there is one card in all.

    A card that has none of them is named."""
    if files.problems():
        note(*files.problems())
    wish = of_reader()
    if wish != st.session_state.get(_OF_PAGE, wish):  # chosen in a fragment: the rest of the page is old
        rerun(PARAM)
    known, shown = records.cards_of(*ladders), records.shown(*ladders)
    if shown and len(known) > 1:
        names = {card.key: card.name for card in known}
        st.session_state[PARAM] = shown.key
        st.pills(
            tr("Recorded on"),
            list(names),
            format_func=names.__getitem__,
            required=True,
            key=PARAM,
            on_change=_choose,
            args=(st.session_state.get(_PREFERRED) or known[0].key,),
        )
    if wish and shown and shown.key != wish:
        named = {"card": records.known_cards()[wish].name, "shown": shown.name}
        quiet(tr("No recording of these kernels exists for the card {card}. These are of {shown}.", **named))


def _choose(default: str) -> None:
    """Writes the card that the reader pressed to the URL. It is not bound to it: the URL of a run of a fragment alone would
    still have the old one."""
    chosen = st.session_state[PARAM]
    write(PARAM, "" if chosen == default else chosen)


cards.follow(of_reader)
