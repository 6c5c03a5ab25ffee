"""The page that every address of the app is answered with: it tells Streamlit's frontend where the server is.

Without that the frontend looks for the server under the page's own path first (/im2col/_stcore/health), and the browser's
console shows two errors for each page that is opened by its address. Streamlit 1.67 reads `window.__streamlit`.

The browser takes the page's name off its own address, so that a path that a proxy puts before it stays. An address
without a known page is left to the frontend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

HTML = b"text/html"
SCRIPT = """<script>
  const found = location.pathname.match(/^(.*)\\/(?:%s)\\/?$/);
  if (found) window.__streamlit = { BACKEND_BASE_URL: `${location.origin}${found[1]}/` };
</script>"""


class ServerNamed:
    """ASGI middleware that writes the server's address into each HTML page. pages: their names in addresses."""

    def __init__(self, app: Any, pages: Iterable[str]):
        self.app = app
        self.script = (SCRIPT % "|".join(map(re.escape, pages))).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or HTML not in dict(scope["headers"]).get(b"accept", b""):
            await self.app(scope, receive, send)
            return
        # Not compressed, so that the script can be added; never "not modified", as the tag is that of the page without it.
        left_out = (b"accept-encoding", b"if-none-match", b"if-modified-since")
        plain = scope | {
            "headers": [(name, value) for name, value in scope["headers"] if name not in left_out]
        }
        await self.app(plain, receive, _Rewritten(send, self.script))


class _Rewritten:
    """Sends a response on; one of HTML whole, with the script at the start of its head."""

    def __init__(self, send: Any, script: bytes):
        self.send, self.script = send, script
        self.start: dict | None = None  # of HTML, held back until its length is known
        self.body = b""

    async def __call__(self, message: dict) -> None:
        if message["type"] == "http.response.start":
            kind = dict(message["headers"]).get(b"content-type", b"")
            if kind.startswith(HTML):
                self.start = message
                return
        elif message["type"] == "http.response.body" and self.start is not None:
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish()
            return
        await self.send(message)

    async def _finish(self) -> None:
        body = self.body.replace(b"<head>", b"<head>" + self.script, 1)
        kept = [
            pair
            for pair in self.start["headers"]
            if pair[0] not in (b"content-length", b"etag", b"last-modified")
        ]
        await self.send(self.start | {"headers": [*kept, (b"content-length", str(len(body)).encode())]})
        await self.send({"type": "http.response.body", "body": body})
