"""The files of the site: compressed, with headers that say how long a browser may keep them."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from gzip import compress
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from typing import Any, NamedTuple

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

NAMED_BY_CONTENT = re.compile(r"files/[0-9a-f]{16}\.bin|(?:site|python)-[0-9a-f]{16}\.(?:js|css)")
FOR_EVER, ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"
TEXT = {".html", ".js", ".mjs", ".css", ".json"}
STATIC_MARK, HALL_MARK = "data-static>", "data-static data-hall>"  # of the element html: site.js looks for the second


class SiteFiles(StaticFiles):
    """The files of a site. Texts are kept compressed in memory; its pages say that there is a hall."""

    def __init__(self, site: Path):
        super().__init__(directory=site, html=True)
        self._root = os.path.realpath(site)

    async def get_response(self, path: str, scope: Any) -> Response:
        if any(part.startswith(".") and part != "." for part in path.split(os.sep)):
            raise HTTPException(404)  # what a build keeps for the next one
        return await super().get_response(path, scope)

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Any, status_code: int = 200
    ) -> Response:
        name = os.path.relpath(os.path.realpath(full_path), self._root).replace(os.sep, "/")
        keep = FOR_EVER if NAMED_BY_CONTENT.fullmatch(name) else ASK_AGAIN
        if Path(name).suffix in TEXT:
            return _text_response(str(full_path), stat_result.st_mtime_ns, keep, scope, status_code)
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = keep
        return response


class _Text(NamedTuple):
    plain: bytes
    compressed: bytes
    tag: str
    kind: str


@lru_cache(512)
def _text(path: str, changed_ns: int) -> _Text:
    plain = Path(path).read_bytes()
    if path.endswith(".html"):
        plain = plain.replace(STATIC_MARK.encode(), HALL_MARK.encode(), 1)
    kind = guess_type(path)[0] or "text/javascript"
    return _Text(plain, compress(plain, 9, mtime=0), f'"{sha256(plain).hexdigest()[:20]}"', kind)


def _text_response(path: str, changed_ns: int, keep: str, scope: Any, status: int) -> Response:
    text, request = _text(path, changed_ns), Headers(scope=scope)
    headers = {"Cache-Control": keep, "ETag": text.tag, "Vary": "Accept-Encoding"}
    if text.tag in request.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = text.plain
    if "gzip" in request.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = text.compressed, "gzip"
    return Response(content, status, headers, text.kind)
