"""Makes the way of a message from a page to the browser cheaper in Streamlit 1.67, without a change of what is sent.

A page has more than one hundred messages. Streamlit passes each by itself: a call on the event loop, a wake-up of the loop
that sends, a place in the queue of the connection, a pause of this loop, a way through the middleware, a write to the
socket. Here the messages that wait go together: one of each. Their order and their bytes stay. The colours of the theme are
part of the first message of each run. They are read from the options once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from functools import partial
from typing import Any

from streamlit import config
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.NewSession_pb2 import CustomThemeConfig
from streamlit.runtime import Runtime, app_session
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.forward_msg_cache import create_reference_msg
from streamlit.runtime.runtime_util import serialize_forward_msg
from streamlit.runtime.scriptrunner import ScriptRunnerEvent
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.runtime.session_manager import ActiveSessionInfo, SessionClientDisconnectedError
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.protocol import OPEN, Protocol

from pages.parts import replay

streamlit_event, streamlit_flush = AppSession._on_scriptrunner_event, AppSession.flush_browser_queue
streamlit_forward = ScriptRunner._enqueue_forward_msg
streamlit_wake, streamlit_theme = Runtime._enqueued_some_message, app_session._populate_theme_msg
uvicorn_send = WebSocketsSansIOProtocol.send
MAX_WAITING = (
    50  # of `Together` that a connection has not sent: the browser does not read. Streamlit's limit is 500 messages
)
BINARY = 0x82  # the first byte of a whole binary message on a WebSocket


class Together(tuple):
    """The bytes of several messages that go to the socket together."""


def make_sending_cheaper() -> None:
    AppSession._on_scriptrunner_event, AppSession.flush_browser_queue = _event, _flush
    ScriptRunner._enqueue_forward_msg = _forward
    Runtime._enqueued_some_message = _wake
    replay.send_all = _send_all
    app_session._populate_theme_msg = _theme
    WebSocketsSansIOProtocol.send = _send


def _event(session: AppSession, sender: Any, event: Any, forward_msg: Any = None, **more: Any) -> None:
    """Passes what a running page tells to the event loop: a message, or several of `_send_all`, without what Streamlit does
    for other events."""
    if event is ScriptRunnerEvent.ENQUEUE_FORWARD_MSG and forward_msg is not None:
        messages = forward_msg if isinstance(forward_msg, tuple) else (forward_msg,)
        session._call_soon_on_event_loop(partial(_enqueue, session, sender, messages))
    else:
        if isinstance(sender, ScriptRunner):
            sender._kernel_theatre_session = session  # for `_forward`
        streamlit_event(session, sender, event, forward_msg, **more)


def _forward(runner: ScriptRunner, message: ForwardMsg) -> None:
    """Passes a message of a running page to its session, without a search for those that listen."""
    session = runner.__dict__.get("_kernel_theatre_session")
    if session is None:
        streamlit_forward(runner, message)
        return
    runner._maybe_handle_execution_control_request()
    session._call_soon_on_event_loop(partial(_enqueue, session, runner, (message,)))


def _enqueue(session: AppSession, sender: Any, messages: tuple[ForwardMsg, ...]) -> None:
    if sender is not session._scriptrunner:
        return  # of a page that has been left
    for message in messages:
        session._browser_queue.enqueue(message)
    if session._message_enqueued_callback:
        session._message_enqueued_callback()


def _send_all(context: ScriptRunContext, messages: Iterable[ForwardMsg]) -> None:
    """Sends messages that have been sent before, in one call on the event loop."""
    runner = context._enqueue.__self__
    runner._maybe_handle_execution_control_request()
    known = context.cached_message_hashes  # by the browser
    to_send = tuple(
        create_reference_msg(one) if one.metadata.cacheable and one.hash in known else one for one in messages
    )
    runner.on_event.send(runner, event=ScriptRunnerEvent.ENQUEUE_FORWARD_MSG, forward_msg=to_send)


def _wake(runtime: Runtime) -> None:
    """Wakes the loop that sends: without a call through the operating system where this is its own thread."""
    wait = runtime._get_async_objs()
    if asyncio._get_running_loop() is wait.eventloop:
        wait.need_send_data.set()
    else:
        streamlit_wake(runtime)


def _flush(session: AppSession) -> list[ForwardMsg]:
    """Sends the waiting messages of a session together. Returns those that Streamlit is to send.

    After each message that it sends it pauses, and all other sessions go on: one hundred pauses for each page. It asks all
    sessions for their messages each time that one of them has some.
    """
    if session._browser_queue.is_empty():
        return []
    messages = streamlit_flush(session)
    if len(messages) < 2 or not Runtime.exists():
        return messages
    info = Runtime.instance()._session_mgr.get_active_session_info(session.id)
    if info is None or not isinstance(info.client, StarletteSessionClient):
        return messages
    try:
        _send_together(info, messages)
    except SessionClientDisconnectedError:
        return messages  # Streamlit meets the same error and ends the connection
    return []


def _send_together(info: ActiveSessionInfo, messages: list[ForwardMsg]) -> None:
    """Gives messages to the connection of a session. SessionClientDisconnectedError if it is closed or does not send."""
    client = info.client
    if client._send_queue.qsize() >= MAX_WAITING:
        client._closed.set()
    if client._closed.is_set():
        raise SessionClientDisconnectedError
    client._send_queue.put_nowait(Together(map(serialize_forward_msg, messages)))
    info.script_run_count += sum(
        message.WhichOneof("type") == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
        for message in messages
    )


_themes: dict[str, tuple[Any, CustomThemeConfig]] = {}


def _theme(message: CustomThemeConfig, section: str = "theme") -> None:
    """Fills in the theme of a section. It is read again after Streamlit has read its options again."""
    of, found = _themes.get(section, (None, None))
    if found is None or of is not config._config_options:
        found = CustomThemeConfig()
        streamlit_theme(found, section)
        _themes[section] = config._config_options, found
    message.MergeFrom(found)


async def _send(protocol: WebSocketsSansIOProtocol, message: Any) -> None:
    """Sends on a WebSocket. Messages that are sent in one turn of the event loop go to the socket together."""
    data = message.get("bytes") if message["type"] == "websocket.send" else None
    if data is None or not protocol.handshake_complete or protocol.close_sent or protocol.initial_response:
        await uvicorn_send(protocol, message)
        return
    await protocol.writable.wait()
    if protocol.disconnected:
        await uvicorn_send(protocol, message)  # which raises
        return
    try:
        _frame(protocol.conn, data if isinstance(data, Together) else (data,))
    except InvalidState:
        await uvicorn_send(protocol, message)  # which raises
        return
    if not protocol.__dict__.get("_kernel_theatre_waits"):
        protocol._kernel_theatre_waits = True
        protocol.loop.call_soon(_write, protocol)


def _frame(conn: Protocol, messages: Iterable[bytes]) -> None:
    """Puts messages into the output of a connection as `send_binary` does, without an object for each.

    InvalidState if it is closed.
    """
    if conn.state is not OPEN or conn.extensions or conn.debug or conn.expect_continuation_frame:
        for message in messages:
            conn.send_binary(message)
        return
    for message in messages:
        length = len(message)
        if length < 126:
            head = struct.pack("!BB", BINARY, length)
        elif length < 65536:
            head = struct.pack("!BBH", BINARY, 126, length)
        else:
            head = struct.pack("!BBQ", BINARY, 127, length)
        conn.writes.append(head)
        conn.writes.append(message)


def _write(protocol: WebSocketsSansIOProtocol) -> None:
    protocol._kernel_theatre_waits = False
    if (output := protocol.conn.data_to_send()) and not protocol.transport.is_closing():
        protocol.transport.write(b"".join(output))
