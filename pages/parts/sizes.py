"""The two sizes of a lesson's strip: the shape on the stage, small enough to watch, and a real one, where times count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple

import streamlit as st

from kernels.i18n import tr
from kernels.model.rung import Rung
from kernels.model.shape import S, Shape
from pages.parts import counts
from pages.parts.run_settings import RunSettings, card_rows
from visuals.strip.evidence import Evidence
from visuals.strip.strip import Size

STAGE, REAL = "stage", "real"
PARAM = "size"  # the URL parameter, which the stage writes
# In the session: the reader's choice and the size that was first then; settings of the stage, and what the strip shows.
_CHOSEN, _SHOWN = "_chosen_size", "_shown_size"


@dataclass(frozen=True)
class Sizes(Generic[S]):
    """How a lesson names its shapes, and its real one.

    `name(shape)` is a shape in a few words. `real(shape)` is the real shape for a reader who watches `shape`, None if there
    is none. `tiles` are the tile sizes that the reader chose for the rung on the stage; none: those for the real shape.
    """

    name: Callable[[S], str]
    real: Callable[[S], S | None]
    tiles: Mapping[str, int] = field(default_factory=dict)
    opens: S | None = (
        None  # the shape that the lesson opens with: another one is the reader's own, and is shown first; None: none is
    )


def settings_by_size(settings: RunSettings, rung: Rung, sizes: Sizes) -> dict[str, RunSettings]:
    """Returns the settings of Run for each size, the real one first: it is the one that counts.

    There is no real size if the shape on the stage has as much work, or if the rung cannot run it.
    """
    found = {STAGE: settings}
    real = sizes.real(settings.shape)
    if real is None or real.macs <= settings.shape.macs:
        return found
    tiles = {**rung.tiles_at(real), **sizes.tiles}
    at_real = replace(settings, shape=real, tiles=tuple(tiles.items()), tiles_rung=rung.name)
    return ({REAL: at_real} if rung in at_real.supported_rungs() else {}) | found


def strip_sizes(by_size: Mapping[str, RunSettings], rung: Rung, sizes: Sizes, can_put: bool) -> list[Size]:
    """Returns what is known of the rung at each size. `can_put`: the page can show the real one."""
    return [Size(key, _evidence(settings, rung, sizes), can_put and key == REAL) for key, settings in by_size.items()]


def measured(by_size: Mapping[str, RunSettings]) -> str:
    """Returns the size that was last measured here; "" if none of them was."""
    ran = st.session_state.get("ran")
    return next((key for key, settings in by_size.items() if ran and ran.settings == settings), "")


def selected(by_size: Mapping[str, RunSettings], opens: Shape | None = None) -> str:
    """Returns the size to show first: what was last measured here, also if it is stale now; else the reader's own shape,
    else the real one. `opens` as in Sizes."""
    first = STAGE if opens not in (None, by_size[STAGE].shape) else next(iter(by_size))
    if not st.session_state.get("ran"):
        return first
    return measured(by_size) or (STAGE if card_rows(by_size[STAGE]).stale else first)


class Shown(NamedTuple):
    """What the strip shows: the settings of its size, and the words for it."""

    settings: RunSettings
    name: str


def forget() -> None:
    """Forgets the reader's choice on another page."""
    st.session_state.pop(_CHOSEN, None)


def choose(size: str, first: str) -> bool:
    """Keeps the reader's choice. Returns whether it differs from what the cards are about.

    The browser sends the choice. It writes it to the URL too, but Streamlit's requests do not have that.
    """
    before = _chosen(first)
    st.session_state[_CHOSEN] = first, size
    return size != (before or first)


def _chosen(first: str) -> str:
    """Returns the reader's choice, "" if there is none since the page shows another size first, as in player.js."""
    of, size = st.session_state.get(_CHOSEN) or (first, st.query_params.get(PARAM, ""))
    return size if of == first else ""


def show(by_size: Mapping[str, RunSettings], first: str, sizes: Sizes) -> None:
    """Keeps for the cards which size the strip shows: that of the URL, else `first`."""
    chosen = _chosen(first)
    key = chosen if chosen in by_size else first
    name = sizes.name(by_size[key].shape)
    if key == STAGE and len(by_size) > 1:
        name = tr("{shape}, on the stage", shape=name)
    st.session_state[_SHOWN] = by_size[STAGE], Shown(by_size[key], name)


def shown(settings: RunSettings) -> Shown:
    """Returns what the strip over these settings shows: the settings themselves without a strip."""
    of, found = st.session_state.get(_SHOWN) or (None, None)
    return found if found and of == settings else Shown(settings, "")


def _evidence(settings: RunSettings, rung: Rung, sizes: Sizes) -> Evidence:
    current = card_rows(settings)
    count = counts.known(settings, rung) if "emulator" in rung.engines else None
    return Evidence(
        settings.ladder,
        rung,
        settings.shape,
        sizes.name(settings.shape),
        settings.tiles_of(rung),
        current.rows,
        current.kind,
        current.stale,
        None if count is None or count.uncounted else count.total,
        "" if rung.library else counts.too_large(settings) if settings.shape.macs > counts.MAX_MACS else "",
        not_here=rung.why_not_on(settings.engine),
    )
