"""Keeps what a page has drawn but the browser has not yet received, when one of its fragments runs next.

Streamlit 1.67 then drops the fragment's share of it from the queue, as the fragment is about to be drawn again, but it
keeps the message that the page is complete. The browser removes the fragment, which it holds from the run before, and
what follows moves up by one place. The next fragment is drawn at a place that is no longer its own: the page stops with
"'setIn' cannot be called on an ElementNode".
"""

from __future__ import annotations

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

streamlit_clear = ForwardMsgQueue.clear


def install() -> tuple[()]:
    """Makes every queue of messages to a browser keep them all when a fragment runs."""
    ForwardMsgQueue.clear = _clear  # pyright: ignore[reportAttributeAccessIssue]  # this is the fix
    return ()


def _clear(
    queue: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
) -> None:
    if fragment_ids_this_run is None:
        streamlit_clear(queue, retain_lifecycle_msgs)
    else:
        queue._delta_index_map = {}  # no message of the new run takes the place of an older one
