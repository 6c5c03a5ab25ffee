"""Middleware that tells Streamlit's frontend, in each HTML page of the app, where the server is.

Without it the frontend first looks for the server under the page's own path (/im2col/_stcore/health), and the browser's
console shows two errors for each page that is opened by its URL. Streamlit 1.67 reads `window.__streamlit`.

The browser removes the page's name from its own URL, so that a path prefix added by a proxy stays. For a URL without
a known page, nothing is set.

The script also lets the browser load the player while it loads Streamlit's own scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

HTML = b"text/html"
if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SCRIPT = """<script>
  const found = location.pathname.match(/^(.*)\\/(?:%s)\\/?$/);
  if (found) window.__streamlit = { BACKEND_BASE_URL: `${location.origin}${found[1]}/` };
</script>"""
PRELOAD = """<script>
  if (found) document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: `${found[1]}/%s` }));
</script>"""


class ServerAddressMiddleware:
    """ASGI middleware that writes the server's address into each HTML page.

    pages: their names in URLs. module: path of a module that every page will import, relative to the server's address.
    """

    def __init__(self, app: ASGIApp, pages: Iterable[str], module: str = ""):
        self.app = app
        preload = PRELOAD % module if module else ""
        self.script = (SCRIPT % "|".join(map(re.escape, pages)) + preload).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or HTML not in dict(scope["headers"]).get(b"accept", b""):
            await self.app(scope, receive, send)
            return
        # Not compressed, so that the script can be added; never "not modified", because the ETag is of the page
        # without it.
        removed = (b"accept-encoding", b"if-none-match", b"if-modified-since")
        uncompressed = {**scope, "headers": [(name, value) for name, value in scope["headers"] if name not in removed]}
        await self.app(uncompressed, receive, _ScriptAdder(send, self.script))


class _ScriptAdder:
    """ASGI `send` that passes a response on, an HTML one as a whole, with the script at the start of its head."""

    def __init__(self, send: Send, script: bytes):
        self.send, self.script = send, script
        self.start: Message | None = None  # of an HTML response, delayed until its length is known
        self.body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = dict(message["headers"]).get(b"content-type", b"")
            if kind.startswith(HTML):
                self.start = message
                return
        elif message["type"] == "http.response.body" and self.start is not None:
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish(self.start)
            return
        await self.send(message)

    async def _finish(self, start: Message) -> None:
        body = self.body.replace(b"<head>", b"<head>" + self.script, 1)
        headers = [pair for pair in start["headers"] if pair[0] not in (b"content-length", b"etag", b"last-modified")]
        await self.send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
        await self.send({"type": "http.response.body", "body": body})
