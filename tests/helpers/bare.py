"""The stages of the app in pages without Streamlit: a page opens in a tenth of the time of the app's.

Python sends what the app sends (page_runner.py). Loader, player and downloads come from the app's own routes. Around the
stage are a heading, a button and a scrolling block, named as Streamlit names them. `show(query)` in the page sends the
scene of another query, as a rerun does. The stage has the place that it has on a page with a story; test_app.py compares.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from pages._lessons import LESSONS
from pages.parts import address
from tests.helpers.page_runner import messages, open_page
from visuals import stage
from visuals.stage.routes import routes

FILES = {lesson.path: lesson.page for lesson in LESSONS}
ABOVE = '<div class="above"><h1>Lesson</h1> <button>options</button></div>'
# As in the app, the stage is in a shadow root, and what is pressed in it goes to the server: here to the list `sent`.
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>stage</title>
<link rel="icon" href="data:,"><style>body { margin: 0 } h1 { font-size: 24px; margin: 8px 0 }
#main { height: 100dvh; overflow: auto } #below { height: 500px }
.page { max-width: 1360px; margin: 0 auto; padding: 0 40px } .above { height: 98px; overflow: hidden }
@media (max-width: 640px) { .page { padding: 0 16px } .above { height: 154px } }</style></head>
<body><div id="main" data-testid="stMain"><div data-testid="stMainBlockContainer"><div data-testid="stVerticalBlock" class="%(page)s">
%(above)s<div id="stage"></div>%(below)s</div></div></div>
<script type="module">
import load from "/loader.js";
const parentElement = document.querySelector("#stage").attachShadow({ mode: "open" });
parentElement.innerHTML = `%(place)s`;
window.sent = [];
window.closers = []; // what the calls of the component returned
const setTriggerValue = (name, value) => sent.push(value);
window.calls = 0; // of the component
window.send = async (data) => {
  calls += 1;
  closers.push(await load({ data, parentElement, setTriggerValue }));
};
window.show = async (query) => send(new Uint8Array(await (await fetch(`/message${location.pathname}${query}`)).arrayBuffer()));
show(location.search);
</script></body></html>
"""
_one_at_a_time = threading.Lock()


@cache
def _message(path: str, *params: tuple[str, str]) -> bytes:
    return messages(open_page(FILES.get(path), **dict(params)))[0]


def message_of(path: str, **params: str) -> bytes:
    """Returns what the app sends to the first stage of a lesson at these URL parameters."""
    kept = sorted((name, value) for name, value in params.items() if name not in address.STAGE)
    with _one_at_a_time:
        return _message(path, *kept)


async def _send(request: Request) -> Response:
    data = await run_in_threadpool(message_of, request.path_params["path"], **request.query_params)
    return Response(data, media_type="application/octet-stream")


def _page(request: Request) -> Response:
    alone = "embed" in request.query_params or "present" in request.query_params
    above, below = ("", "") if alone else (ABOVE, '<div id="below"></div>')
    return HTMLResponse(PAGE % {"above": above, "below": below, "page": "" if alone else "page", "place": stage._PLACE})


def _loader(request: Request) -> Response:
    return Response(stage.loader(), media_type="text/javascript")


def _no_news(request: Request) -> Response:
    """Answers a player that waits for counts: none come here."""
    return JSONResponse({"gone": True})


@contextmanager
def serving_stages() -> Iterator[str]:
    """Serves the stages in this process and yields the address: a lesson's page is under its path, as in the app."""
    message_of("im2col", view="watch")  # the first run of a page takes seconds, which no test is to wait for
    own = [
        Route("/loader.js", _loader),
        Route("/message/{path:path}", _send),
        Route("/stage/watch/{token}", _no_news),
        Route("/{path:path}", _page),
    ]
    app = Starlette(routes=[*routes(), *own])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server ended"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
