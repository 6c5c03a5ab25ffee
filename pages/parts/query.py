"""The parameters of the address as a page reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.parts import address as parts_address
from pages.parts.address import Fields, Values

NOW = "_asked_now"  # what the page's last run read of the address: pairs of Fields and their values


# -- what is asked for ---------------------------------------------------------------------------
def asked(fields: Fields, shown: bool) -> tuple[Values, list[str]]:
    """What the parameters ask for now, and a note for each that could not be taken. In a browser the
    address says it; where there is none (tests), what the controls hold. `shown`: the controls are drawn."""
    state, kept = st.session_state, f"_asked_{fields.lesson}"
    address = {name: value for name, value in st.query_params.items() if name in fields.of}
    held = {name: state.get(name) for name in fields.of}
    before = state.get(kept)  # of the last run
    turned = bool(shown and before) and any(
        (held[n] if n in held else state.get(n)) != v for n, v in before["values"].items()
    )
    values, notes = fields.read(held if turned and st.context.url is None else address)
    if before is None:
        if notes:  # one entry of the browser's history, where the controls would each make their own
            others = {k: v for k, v in st.query_params.items() if k not in fields.of}
            st.query_params.from_dict(others | fields.write(values))
    elif values == before["values"]:
        notes = notes or before["notes"]
    elif not turned:
        # A link led to this same page: let the browser's address show it, as an entry Back returns to.
        # This sends the parameters of this run; after Back they stand there already.
        st.query_params.update({})
    if shown:
        for name, value in values.items():
            if held[name] != value:
                state[name] = value
    state[kept] = {"values": values, "notes": notes}
    state.setdefault(NOW, []).append((fields, values))
    return values, notes


def behind() -> bool:
    """Whether a fragment that polls must leave the page as it is for now, the next poll will know better: where the
    address of its run is not that of the page, and where another fragment is still to run in which something may have
    been pressed."""
    context = get_script_run_ctx()
    if context is None or st.context.url is None:
        return False
    address = st.query_params.to_dict()
    moved = any(fields.read(address)[0] != values for fields, values in st.session_state.get(NOW, ()))
    return moved or len(context.fragment_ids_this_run or ()) > 1


def chosen(name: str, choices: Iterable[str]) -> str:
    """What the address asks for among `choices`, the first where it names none of them. The address is
    believed, not the control, which in a closed popover misses what a link or Back has changed."""
    told = st.query_params.get(name) if st.context.url else st.session_state.get(name)
    return told if told in choices else next(iter(choices))


def others(fields: Fields) -> dict[str, str]:
    """The parameters of the address that are not the lesson's own nor the moment of the stage: links keep them."""
    return {k: v for k, v in st.query_params.items() if k not in (*fields.of, *parts_address.STAGE)}
