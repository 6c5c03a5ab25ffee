"""A request for a fragment of the page that was left does not reach Streamlit; every other message does."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

from pages.streamlit_patches.stale_fragments import StaleFragmentMiddleware

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
        await StaleFragmentMiddleware(app)({"type": kind}, receive, None)

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
