"""Messages that go to the browser together are those that Streamlit would send, in their order."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from types import SimpleNamespace

import pytest
from streamlit.cursor import RunningCursor
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.NewSession_pb2 import CustomThemeConfig
from streamlit.runtime.scriptrunner import ScriptRunnerEvent
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.session_manager import SessionClientDisconnectedError
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient
from uvicorn.protocols.utils import ClientDisconnected
from websockets.exceptions import InvalidState
from websockets.protocol import CLOSED, OPEN
from websockets.server import ServerProtocol

from pages import _cheaper_sending as cheaper
from pages import _cheaper_streamlit


class Transport:
    def __init__(self):
        self.written = []

    def write(self, data):
        self.written.append(data)

    def is_closing(self):
        return False


def in_a_loop(coroutine):
    """Runs it in a thread of its own: a browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def a_protocol(loop, **more):
    conn = ServerProtocol(state=OPEN)
    writable = asyncio.Event()
    writable.set()
    fields = {"handshake_complete": True, "close_sent": False, "initial_response": None, "disconnected": False}
    return SimpleNamespace(conn=conn, transport=Transport(), writable=writable, loop=loop, **(fields | more))


def test_messages_of_one_turn_are_one_write():
    async def run():
        protocol = a_protocol(asyncio.get_running_loop())
        for n in range(3):
            await cheaper._send(protocol, {"type": "websocket.send", "bytes": bytes([n])})
        assert protocol.transport.written == []
        await asyncio.sleep(0)
        await cheaper._send(protocol, {"type": "websocket.send", "bytes": b"later"})
        await asyncio.sleep(0)
        return protocol.transport.written

    frames, later = in_a_loop(run())
    assert frames == b"".join(b"\x82\x01" + bytes([n]) for n in range(3)) and later.endswith(b"later")


def test_frames_are_those_of_the_library():
    messages = [bytes(n) for n in (0, 1, 125, 126, 65535, 65536)]
    mine, librarys = ServerProtocol(state=OPEN), ServerProtocol(state=OPEN)
    for message in messages:
        librarys.send_binary(message)
    cheaper._frame(mine, messages)
    assert b"".join(mine.data_to_send()) == b"".join(librarys.data_to_send())


def test_a_closed_connection_takes_no_messages():
    with pytest.raises(InvalidState):
        cheaper._frame(ServerProtocol(state=CLOSED), [b"1"])


def test_messages_of_a_session_go_to_its_connection_together():
    async def run():
        client = StarletteSessionClient.__new__(StarletteSessionClient)
        client._send_queue, client._closed = asyncio.Queue(), asyncio.Event()
        info = SimpleNamespace(client=client, script_run_count=3)
        messages = [ForwardMsg(hash="1"), ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY)]
        cheaper._send_together(info, messages)
        assert client._send_queue.get_nowait() == tuple(m.SerializeToString() for m in messages)
        assert info.script_run_count == 4
        for _ in range(cheaper.MAX_WAITING):
            cheaper._send_together(info, messages[:1])
        with pytest.raises(SessionClientDisconnectedError):
            cheaper._send_together(info, messages[:1])  # the browser does not read
        assert client._closed.is_set() and info.script_run_count == 4

    in_a_loop(run())


def test_a_browser_that_has_gone_is_told_as_before():
    async def run():
        protocol = a_protocol(asyncio.get_running_loop(), disconnected=True)
        with pytest.raises(ClientDisconnected):
            await cheaper._send(protocol, {"type": "websocket.send", "bytes": b"1"})

    in_a_loop(run())


@pytest.mark.parametrize("section", ["theme", "theme.light", "theme.dark"])
def test_the_theme_is_streamlits(section):
    for _ in range(2):
        mine, streamlits = CustomThemeConfig(), CustomThemeConfig()
        cheaper._theme(mine, section)
        cheaper.streamlit_theme(streamlits, section)
        assert mine == streamlits


def test_messages_of_a_page_that_was_left_are_dropped():
    queue, calls, woken, runner = [], [], [], object()
    session = SimpleNamespace(
        _call_soon_on_event_loop=calls.append,
        _browser_queue=SimpleNamespace(enqueue=queue.append),
        _message_enqueued_callback=lambda: woken.append(len(queue)),
        _scriptrunner=runner,
    )
    one, two, three = (ForwardMsg(hash=str(n)) for n in range(3))
    event = ScriptRunnerEvent.ENQUEUE_FORWARD_MSG
    cheaper._event(session, runner, event=event, forward_msg=one)
    cheaper._event(session, object(), event=event, forward_msg=two)
    cheaper._event(session, runner, event=event, forward_msg=(two, three))
    for call in calls:
        call()
    assert queue == [one, two, three] and woken == [1, 3]


def test_a_message_goes_to_the_session_that_listens_to_its_page():
    runner = ScriptRunner.__new__(ScriptRunner)
    calls, found, checks = [], [], []
    runner.on_event = SimpleNamespace(send=lambda sender, event, forward_msg: found.append(forward_msg))
    runner._maybe_handle_execution_control_request = lambda: checks.append(1)
    message = ForwardMsg(hash="1")
    cheaper._forward(runner, message)
    assert found == [message] and calls == []  # the way of Streamlit
    runner._kernel_theatre_session = SimpleNamespace(_call_soon_on_event_loop=calls.append)
    cheaper._forward(runner, message)
    assert len(found) == len(calls) == 1 and checks == [1, 1]


def test_the_copy_of_a_place_is_pythons():
    cursor = RunningCursor(0, (3, 1))
    cursor.lock_element()
    mine = _cheaper_streamlit._copied(cursor, {})
    assert mine.delta_path == deepcopy(cursor).delta_path == [0, 3, 1, 1]
    mine.lock_element()
    assert cursor.index == 1 and mine.index == 2
    cursor.get_transient_cursor()
    assert _cheaper_streamlit._copied(cursor, {}).transient_index == cursor.transient_index == 0
