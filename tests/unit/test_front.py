"""Each HTML page names the server to Streamlit's frontend; nothing else is touched."""

from __future__ import annotations

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from visuals.stage.front import ServerNamed

PAGE = "<!DOCTYPE html><html><head><title>×</title></head><body>" + 4000 * "x" + "</body></html>"


def page(request) -> Response:
    if request.headers.get("if-none-match"):
        return Response(status_code=304)
    return HTMLResponse(PAGE, headers={"ETag": '"1"'})


async def pieces():
    for start in range(0, len(PAGE), 1000):
        yield PAGE[start : start + 1000]


ROUTES = [
    Route("/page", page),
    Route("/pieces", lambda request: StreamingResponse(pieces(), media_type="text/html")),
    Route("/text", lambda request: PlainTextResponse(PAGE)),
]
PACKED = Starlette(routes=ROUTES, middleware=[Middleware(GZipMiddleware)])


def get(path: str, base: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a GET."""
    sent: list[dict] = []
    asked = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": asked,
        "root_path": "",
    }

    async def receive():
        await asyncio.Event().wait()  # the browser stays

    async def send(message):
        sent.append(message)

    async def answer():
        await ServerNamed(PACKED, base)(scope, receive, send)

    with ThreadPoolExecutor(1) as thread:  # the browser's tests may leave a loop running in this one
        thread.submit(asyncio.run, answer()).result()
    start, *rest = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], told, b"".join(message.get("body", b"") for message in rest)


@pytest.mark.parametrize("path", ["/page", "/pieces"])
@pytest.mark.parametrize(("base", "where"), [("", '"/"'), ("theatre", '"/theatre"'), ("/a/b/", '"/a/b"')])
def test_a_page_names_the_server(path, base, where):
    status, headers, body = get(
        path, base, accept="text/html,*/*", accept_encoding="gzip", if_none_match='"1"'
    )
    script = f"<script>window.__streamlit = {{ BACKEND_BASE_URL: location.origin + {where} }};</script>"
    assert status == 200 and body.decode() == PAGE.replace("<head>", f"<head>{script}")
    assert "etag" not in headers and headers["content-length"] == str(len(body))


def test_all_else_is_as_it_was():
    assert get("/text", accept="text/html")[2].decode() == PAGE
    _, headers, body = get("/page", accept="*/*", accept_encoding="gzip")
    assert headers["content-encoding"] == "gzip" and gzip.decompress(body).decode() == PAGE
    assert get("/page", accept="*/*", if_none_match='"1"')[0] == 304
    assert get("/none", accept="text/html")[0] == 404
