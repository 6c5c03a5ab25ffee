"""Each HTML page tells Streamlit's frontend its server; other responses are unchanged."""

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

from visuals.stage.front import PRELOAD, SCRIPT, ServerAddressMiddleware

PAGE = "<!DOCTYPE html><html><head><title>×</title></head><body>" + 4000 * "x" + "</body></html>"


def page(request) -> Response:
    if request.headers.get("if-none-match"):
        return Response(status_code=304)
    return HTMLResponse(PAGE, headers={"ETag": '"1"'})


async def chunks():
    for start in range(0, len(PAGE), 1000):
        yield PAGE[start : start + 1000]


ROUTES = [
    Route("/page", page),
    Route("/pieces", lambda request: StreamingResponse(chunks(), media_type="text/html")),
    Route("/text", lambda request: PlainTextResponse(PAGE)),
]
COMPRESSED = Starlette(routes=ROUTES, middleware=[Middleware(GZipMiddleware)])


def get(path: str, module: str = "", **fields: str) -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and body of a GET."""
    messages: list[dict] = []
    request_headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": request_headers,
        "root_path": "",
    }

    async def receive():
        await asyncio.Event().wait()  # the browser stays connected

    async def send(message):
        messages.append(message)

    async def run():
        await ServerAddressMiddleware(COMPRESSED, ("im2col", "history"), module)(scope, receive, send)

    with ThreadPoolExecutor(1) as thread:  # the browser tests may leave a loop running in this one
        thread.submit(asyncio.run, run()).result()
    start, *rest = messages
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, b"".join(message.get("body", b"") for message in rest)


@pytest.mark.parametrize("path", ["/page", "/pieces"])
def test_html_page_gets_the_script(path):
    status, headers, body = get(path, accept="text/html,*/*", accept_encoding="gzip", if_none_match='"1"')
    script = SCRIPT % "im2col|history"
    assert status == 200 and body.decode() == PAGE.replace("<head>", f"<head>{script}")
    assert "etag" not in headers and headers["content-length"] == str(len(body))


def test_script_removes_the_page_name_from_the_url(node):
    servers = {
        "/im2col": "http://host/",
        "/im2col/": "http://host/",
        "/theatre/history": "http://host/theatre/",
        "/user/a/proxy/8501/im2col": "http://host/user/a/proxy/8501/",
        "/": None,
        "/theatre": None,
        "/nothing": None,
        "/im2colour": None,
    }
    code = (SCRIPT % "im2col|history").removeprefix("<script>").removesuffix("</script>")
    found = f"""console.log(JSON.stringify(Object.fromEntries({json.dumps(list(servers))}.map((pathname) => {{
      const window = {{}}, location = {{ origin: "http://host", pathname }};
      {code}
      return [pathname, window.__streamlit?.BACKEND_BASE_URL ?? null];
    }}))));"""
    process = subprocess.run([node, "-e", found], capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == servers


def test_the_module_is_loaded_in_advance_from_the_same_server(node):
    body = get("/page", "stage/player-1.js", accept="text/html")[2].decode()
    scripts = body[: body.index("<title>")].removeprefix("<!DOCTYPE html><html><head>")
    assert scripts == SCRIPT % "im2col|history" + PRELOAD % "stage/player-1.js"
    code = scripts.replace("<script>", "").replace("</script>", "")
    head = """const links = [], window = {}, location = { origin: "http://host", pathname: "/talk/im2col" };
      const document = { createElement: () => ({}), head: { append: (link) => links.push(link) } };"""
    process = subprocess.run(
        [node, "-e", f"{head}{code}console.log(JSON.stringify(links));"], capture_output=True, text=True, check=True
    )
    assert json.loads(process.stdout) == [{"rel": "modulepreload", "href": "/talk/stage/player-1.js"}]


def test_other_responses_are_unchanged():
    assert get("/text", accept="text/html")[2].decode() == PAGE
    _, headers, body = get("/page", accept="*/*", accept_encoding="gzip")
    assert headers["content-encoding"] == "gzip" and gzip.decompress(body).decode() == PAGE
    assert get("/page", accept="*/*", if_none_match='"1"')[0] == 304
    assert get("/none", accept="text/html")[0] == 404
