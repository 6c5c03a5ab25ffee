"""Links of a page to itself that the reader presses before they are drawn with the last change.

Such a link is a whole URL. It holds the values of the run that drew it. A reader who changes a control and presses a link
before the page is drawn anew would get the old value back. So the session keeps the URL at which each link was drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import streamlit as st

MAX_LINKS = 512  # of a session: those of the last runs of a page with about 50 links
_LINKS = "_links"  # in the session: by the parameters of a link, the last drawing of it
Params = Mapping[str, str]


class _Link(NamedTuple):
    url: Params  # of the page, when the link was drawn
    sets: Collection[str]  # what it sets, also where that was the value of the page


def drawn(params: dict[str, str], sets: Collection[str]) -> dict[str, str]:
    """Returns the parameters of a link that is drawn now, and keeps the page's URL for `pressed`.

    sets: the names of all parameters that the link itself is about. It keeps the others."""
    links, url = st.session_state.setdefault(_LINKS, {}), st.query_params.to_dict()
    links.pop(key := frozenset(params.items()), None)
    if url != params:  # each later request with the page's own URL would look like such a link
        links[key] = _Link(url, sets)
    if len(links) > MAX_LINKS:
        del links[next(iter(links))]
    return params


def pressed(params: Params, now: Params, fixed: Collection[str]) -> dict[str, str]:
    """Returns the parameters that a pressed link would have if it had been drawn at `now`, the URL of the last run.

    params: of the request. Those of other requests are returned unchanged. fixed: names that are never changed.
    """
    link = st.session_state.get(_LINKS, {}).get(frozenset(params.items()))
    if link is None or params == now:
        return dict(params)
    changed = {name for name in {*link.url, *now} if link.url.get(name) != now.get(name)}
    kept = {name for name in changed if params.get(name) == link.url.get(name)} - {*link.sets, *fixed}
    newer = {name: now[name] for name in kept if name in now}
    return {name: value for name, value in params.items() if name not in kept} | newer


def forget() -> None:
    """Forgets the links of another page."""
    st.session_state.pop(_LINKS, None)
