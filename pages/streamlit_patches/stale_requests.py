"""Middleware that drops a browser's request for a part of a page that the reader has just left.

A fragment that polls is requested by a timer in the browser, and the player presses for news of what it waits for. Both may
come while the server draws another page. Streamlit 1.67 would run the fragment as part of the page that was left, and the
frontend would remove the new page: it stays blank. After a press it would draw the page that was left, at the other page's URL.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from starlette.middleware import Middleware
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState


def install() -> tuple[Middleware]:
    return (Middleware(StaleRequestMiddleware),)


class StaleRequestMiddleware:
    """ASGI middleware: of the messages on a browser's WebSocket the app receives all but stale ones."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            receive = _CurrentMessages(receive)
        await self.app(scope, receive, send)


class _CurrentMessages:
    """ASGI `receive` that skips requests for fragments, and presses in components, of another page than the one that was
    requested last."""

    def __init__(self, receive: Any):
        self.receive = receive
        self.page_hash = ""  # of the page that was requested last; empty if it was requested by its name

    async def __call__(self) -> dict:
        while self._is_stale(message := await self.receive()):
            pass
        return message

    def _is_stale(self, message: dict) -> bool:
        request = _rerun_request(message)
        if request is None:
            return False
        pressed = any(one.WhichOneof("value") == "json_trigger_value" for one in request.widget_states.widgets)
        if (request.fragment_id or pressed) and self.page_hash and request.page_script_hash != self.page_hash:
            return True
        if not request.fragment_id:
            self.page_hash = request.page_script_hash
        return False


def _rerun_request(message: dict) -> ClientState | None:
    """Returns what the message asks to run; None if it asks for something else."""
    try:
        decoded = BackMsg.FromString(message.get("bytes") or b"")
    except DecodeError:
        return None
    return decoded.rerun_script if decoded.HasField("rerun_script") else None
