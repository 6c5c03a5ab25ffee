"""Each HTML page names the server to Streamlit's frontend; nothing else is touched."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from visuals.stage.front import SCRIPT, ServerNamed

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


def get(path: str, **fields: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a GET."""
    sent: list[dict] = []
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": given,
        "root_path": "",
    }

    async def receive():
        await asyncio.Event().wait()  # the browser stays

    async def send(message):
        sent.append(message)

    async def answer():
        await ServerNamed(PACKED, ("im2col", "history"))(scope, receive, send)

    with ThreadPoolExecutor(1) as thread:  # the browser's tests may leave a loop running in this one
        thread.submit(asyncio.run, answer()).result()
    start, *rest = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, b"".join(message.get("body", b"") for message in rest)


@pytest.mark.parametrize("path", ["/page", "/pieces"])
def test_a_page_names_the_server(path):
    status, headers, body = get(path, accept="text/html,*/*", accept_encoding="gzip", if_none_match='"1"')
    script = SCRIPT % "im2col|history"
    assert status == 200 and body.decode() == PAGE.replace("<head>", f"<head>{script}")
    assert "etag" not in headers and headers["content-length"] == str(len(body))


@pytest.mark.parametrize(
    ("path", "server"),
    [
        ("/im2col", "http://host/"),
        ("/im2col/", "http://host/"),
        ("/theatre/history", "http://host/theatre/"),
        ("/user/a/proxy/8501/im2col", "http://host/user/a/proxy/8501/"),
        ("/", None),
        ("/theatre", None),
        ("/nothing", None),
        ("/im2colour", None),
    ],
)
def test_the_browser_takes_the_pages_name_off_its_address(node, path, server):
    code = (SCRIPT % "im2col|history").removeprefix("<script>").removesuffix("</script>")
    head = f"const window = {{}}, location = {{ origin: 'http://host', pathname: {json.dumps(path)} }};"
    report = "console.log(JSON.stringify(window.__streamlit?.BACKEND_BASE_URL ?? null));"
    ran = subprocess.run([node, "-e", head + code + report], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == server


def test_all_else_is_as_it_was():
    assert get("/text", accept="text/html")[2].decode() == PAGE
    _, headers, body = get("/page", accept="*/*", accept_encoding="gzip")
    assert headers["content-encoding"] == "gzip" and gzip.decompress(body).decode() == PAGE
    assert get("/page", accept="*/*", if_none_match='"1"')[0] == 304
    assert get("/none", accept="text/html")[0] == 404
