"""A request for a part of the page that was left does not reach Streamlit; every other message does."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from pages.streamlit_patches.stale_requests import StaleRequestMiddleware
from tests.helpers.harness import TIMEOUT_MS, serving

TILING, IM2COL = "cc05", "6bae"


def rerun(**request):
    message = BackMsg()
    message.rerun_script.SetInParent()
    for name, value in request.items():
        setattr(message.rerun_script, name, value)
    return {"type": "websocket.receive", "bytes": message.SerializeToString()}


def page(page_hash):
    return rerun(page_script_hash=page_hash)


def fragment(page_hash):
    return rerun(page_script_hash=page_hash, fragment_id="polls")


def received(*messages, kind="websocket"):
    """Returns which of the messages an app behind the middleware receives."""
    end = {"type": "websocket.disconnect"}
    waiting = iter([*messages, end])
    passed = []

    async def receive():
        return next(waiting)

    async def app(scope, receive, send):
        while (message := await receive()) != end:
            passed.append(message)

    async def run():
        await StaleRequestMiddleware(app)({"type": kind}, receive, None)

    with ThreadPoolExecutor(1) as thread:  # the browser tests may leave a loop running in this one
        thread.submit(asyncio.run, run()).result()
    return passed


def test_fragment_of_the_page_that_was_left_is_dropped():
    after_back = page(IM2COL)
    assert received(page(TILING), fragment(TILING), after_back, fragment(TILING), fragment(IM2COL)) == [
        page(TILING),
        fragment(TILING),
        after_back,
        fragment(IM2COL),
    ]


def press(page_hash):
    """Returns the request of a player that has news for the page."""
    message = BackMsg()
    message.rerun_script.page_script_hash = page_hash
    message.rerun_script.widget_states.widgets.add(id="stage", json_trigger_value="[]")
    return {"type": "websocket.receive", "bytes": message.SerializeToString()}


def test_a_press_on_the_page_that_was_left_is_dropped():
    """Back during a run of the emulator: the stage pressed for the counts, and the page that was left came back."""
    kept = [press(TILING), page(IM2COL), press(IM2COL), page(TILING), press(TILING)]
    assert received(page(TILING), kept[0], kept[1], press(TILING), *kept[2:]) == [page(TILING), *kept]


def test_fragments_of_a_page_that_was_requested_by_its_name_are_kept():
    by_name = rerun(page_name="im2col")
    assert received(by_name, fragment(IM2COL)) == [by_name, fragment(IM2COL)]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": "no bytes"},
        {"type": "websocket.receive", "bytes": b"\xff\xff no message"},
        {"type": "websocket.receive", "bytes": BackMsg(clear_cache=True).SerializeToString()},
    ],
)
def test_other_messages_are_kept(message):
    assert received(page(IM2COL), message, fragment(TILING)) == [page(IM2COL), message]


def test_requests_over_http_are_not_read():
    assert received(page(IM2COL), fragment(TILING), kind="http") == [page(IM2COL), fragment(TILING)]


async def runs_after_a_late_timer(url) -> tuple[str, str, list[tuple[str, list[str]]]]:
    """Returns the first page of tests/helpers/two_pages.py, its fragment, and the page and the fragments of each run.

    The first page is opened, then the other one. While that is drawn, the timer of the first page requests its fragment."""
    runs, fragment, ended = [], "", 0
    stream = url.replace("http", "ws", 1) + "/_stcore/stream"
    async with websockets.connect(stream, subprotocols=["streamlit"], origin=url, max_size=None) as socket:
        await socket.send(rerun()["bytes"])
        while ended < 3:
            message = ForwardMsg.FromString(await asyncio.wait_for(socket.recv(), TIMEOUT_MS / 1e3))
            match message.WhichOneof("type"):
                case "new_session":
                    runs.append((message.new_session.page_script_hash, list(message.metadata.run.fragment_ids)))
                case "auto_rerun":
                    fragment = message.auto_rerun.fragment_id
                case "navigation":
                    page_hash = message.navigation.page_script_hash
                case "script_finished":
                    ended += 1
                    if ended == 1:
                        first = page_hash
                        await socket.send(rerun(page_name="slow")["bytes"])
                case "delta" if message.delta.new_element.markdown.body == "drawing":
                    request = rerun(page_script_hash=first, fragment_id=fragment, is_auto_rerun=True)
                    await socket.send(request["bytes"])
    return first, fragment, runs


def test_streamlit_alone_would_run_the_fragment_of_the_page_that_was_left():
    """If this fails, Streamlit drops such requests itself: `pages/streamlit_patches/stale_requests.py` can go."""
    with serving("tests/helpers/two_pages.py") as app, ThreadPoolExecutor(1) as thread:
        first, fragment, runs = thread.submit(asyncio.run, runs_after_a_late_timer(app.url)).result()
    assert runs[-1] == (first, [fragment])
