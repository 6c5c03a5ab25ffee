"""Draws a part of a page again from the messages of its first drawing.

Many parts of a page do not depend on the control that changed: the navigation bar, links to presets, the cards of recorded
times. To draw one is to build a message for each of its elements, to copy it and to compute its hash. The messages are the
same for all readers. So they are kept, and a rerun sends them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, NamedTuple

from streamlit.runtime.scriptrunner import get_script_run_ctx

from kernels import i18n

MAX_PARTS = 512  # of all pages and readers; the one that was not drawn for the longest time goes first
_lock = Lock()


class _Part(NamedTuple):
    messages: tuple[Any, ...]
    places: int  # that it takes in its container


def _one_by_one(context: Any, messages: Iterable[Any]) -> None:
    for message in messages:
        context.enqueue(message)


send_all = _one_by_one  # the app has a cheaper way (pages/_cheaper_sending.py)
_parts: OrderedDict[Hashable, _Part] = OrderedDict()


def replayed(draw: Callable[[], None], *key: Hashable, styles: bool = False) -> None:
    """Draws by `draw()`, or from the messages of an earlier drawing with the same key at the same place.

    `key`: everything that the drawing depends on, except for the language. `draw` may draw no control, because a control
    has a value, and no fragment. `styles`: it draws styles alone, for which Streamlit has a container of their own.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if not hasattr(context, "enqueue"):  # the static site
        draw()
        return
    cursor = _cursor(styles)
    full = i18n.language(), tuple(cursor.delta_path), _drawing(), *key
    with _lock:
        if part := _parts.get(full):
            _parts.move_to_end(full)
    if part is None:
        part = _drawn(context, cursor, draw)
        with _lock:
            _parts[full] = part
            while len(_parts) > MAX_PARTS:
                _parts.popitem(last=False)
        return
    send_all(context, part.messages)
    for _ in range(part.places):
        cursor.open_block()


def _drawn(context: Any, cursor: Any, draw: Callable[[], None]) -> _Part:
    messages, send, first = [], context.enqueue, cursor.index

    def enqueue(message: Any) -> None:
        messages.append(message)
        send(message)

    context.enqueue = enqueue
    try:
        draw()
    finally:
        del context.enqueue  # the method of its class is back
    return _Part(tuple(messages), cursor.index - first)


def _cursor(styles: bool) -> Any:
    """Returns the place of the next element in Streamlit's open container, or in that of styles."""
    from streamlit.delta_generator_singletons import get_dg_singleton_instance  # the site has no such module

    containers = get_dg_singleton_instance()
    return (containers.event_dg if styles else containers.main_dg._active_dg)._cursor


def _drawing() -> tuple[str, str]:
    """Returns the page and the fragment that are being drawn: each message has both names."""
    from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState

    state = ThreadState.get()
    return state.active_script_hash, state.fragment_id or ""


def forget() -> None:
    """Forgets all messages."""
    with _lock:
        _parts.clear()
