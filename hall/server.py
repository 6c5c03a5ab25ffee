"""The server of the hall: the site's files and the interface under /hall (docs/hall.md has its table)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from hall.pages import Refusal
from hall.recorder import Recorder
from hall.runs import Runs
from hall.static import SiteFiles
from kernels.i18n import tr
from kernels.jobs.job import JobError
from kernels.records import rows, store
from kernels.records.jsontext import RowError
from kernels.records.store import StoreError
from visuals.stage.routes import routes as stage_routes

SESSION = "Kernel-Theatre-Session"  # the header with the name that a browser's tab has given itself
MAX_BODY, MAX_PARAMS, MAX_QUERY = 2_000, 64, 16_000  # bytes, parameters, characters
BURST, PER_S = 60, 4  # requests of one session: at once, and for each second after them
MAX_BUCKETS = 10_000
NO_STORE = {"Cache-Control": "no-store"}
_NAME = re.compile(r"[0-9a-f]{32}")
log = logging.getLogger(__name__)


class Api:
    """The interface of the hall."""

    def __init__(self, recorder: Recorder, runs: Runs):
        self._recorder, self._runs = recorder, runs
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health),
            Route("/strip/{path:path}", self.strip),
            Route("/page/{path:path}", self.page),
            Route("/file/{path:path}", self.file),
            Route("/press/{path:path}", self.press, methods=["POST"]),
            Route("/rows", self.take, methods=["POST"]),
            Route("/runs/{name}", self.events),
            Route("/runs/{name}/stop", self.stop, methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        return JSONResponse({"ok": True}, headers=NO_STORE)

    async def strip(self, request: Request) -> Response:
        """Returns the strip of an address on this machine: what Run does here, or why it cannot."""
        self._count(request)
        strip = await self._recorder.strip(request.path_params["path"], _params(request))
        return JSONResponse({"strip": strip}, headers=NO_STORE)

    async def page(self, request: Request) -> Response:
        """Returns a page with what this session has measured."""
        session = self._count(request)
        found = await self._recorder.ask("page", session, request.path_params["path"], _params(request))
        headers = NO_STORE | {"Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            found = gzip.decompress(found)
        return Response(found, media_type="application/json", headers=headers)

    async def press(self, request: Request) -> Response:
        """Presses Run of a page's stage, or a button of a page by its key. Returns the name of the run that it started and
        the strip that shows it, or the address that the page has after it."""
        session = self._count(request)
        if not session:
            raise Refusal(400, tr("The header {name} must name a session by 32 hexadecimal digits.", name=SESSION))
        body = await _body(request, {"key": str, "do": str, "size": str})
        if body["do"] not in ("run", "button"):
            raise Refusal(400, tr("{name} must be {values}.", name="do", values="run, button"))
        path, pressed = request.path_params["path"], {"do": body["do"], "size": body["size"]}
        run, found = await self._runs.press(session, path, _params(request), body["key"], pressed)
        if run is None:
            return JSONResponse({"to": found.to}, headers=NO_STORE)
        return JSONResponse({"run": run.name, "strip": found.strip}, 202, headers=NO_STORE)

    async def file(self, request: Request) -> Response:
        """Returns a file that a page offers: the rows of History."""
        self._count(request)
        params = _params(request)
        address = request.path_params["path"], params, params.pop("file", "")
        content, name, kind = await self._recorder.ask("file", *address)
        return Response(
            content, media_type=kind, headers=NO_STORE | {"Content-Disposition": f'attachment; filename="{name}"'}
        )

    async def take(self, request: Request) -> Response:
        """Puts the rows of an exported file into the store, under the file's name."""
        self._count(request)
        try:
            text = (await _bytes(request, rows.MAX_BYTES)).decode("utf-8")
            name = request.query_params.get("name", "")
            total, new = await anyio.to_thread.run_sync(store.user_store().import_, text, name)
        except UnicodeDecodeError:
            raise Refusal(400, tr("The file is not text in UTF-8.")) from None
        except (RowError, StoreError) as error:
            raise Refusal(400, str(error)) from None
        return JSONResponse({"rows": total, "new": new}, headers=NO_STORE)

    async def events(self, request: Request) -> Response:
        """Sends the state of a run as server-sent events until it has ended. A browser cannot send a header with this
        request, so the session is a parameter."""
        run = self._runs.found(request.path_params["name"], request.query_params.get("session", ""))

        async def lines() -> AsyncIterator[str]:
            async for state in self._runs.news(run):
                yield f"data: {json.dumps(state)}\n\n" if state else ": waiting\n\n"

        return StreamingResponse(
            lines(), media_type="text/event-stream", headers=NO_STORE | {"X-Accel-Buffering": "no"}
        )

    async def stop(self, request: Request) -> Response:
        session = self._count(request)
        await self._runs.stop(self._runs.found(request.path_params["name"], session))
        return JSONResponse({}, headers=NO_STORE)

    def _count(self, request: Request) -> str:
        """Returns the session of a request, "" without one. Refusal if it sends too many."""
        session = request.headers.get(SESSION, "")
        if session and not _NAME.fullmatch(session):
            raise Refusal(400, tr("The header {name} must name a session by 32 hexadecimal digits.", name=SESSION))
        key, now = session or (request.client.host if request.client else ""), time.monotonic()
        left, since = self._buckets.pop(key, (float(BURST), now))
        left = min(float(BURST), left + PER_S * (now - since)) - 1
        self._buckets[key] = max(0.0, left), now
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if left < 0:
            raise Refusal(429, tr("Too many requests. Try again in a few seconds."))
        return session


def _params(request: Request) -> dict[str, str]:
    """Returns the parameters of an address. Refusal if they are too many or too long."""
    if len(request.url.query) > MAX_QUERY or len(request.query_params) > MAX_PARAMS:
        raise Refusal(414, tr("The address is too long."))
    return dict(request.query_params)


async def _body(request: Request, fields: dict[str, type]) -> dict[str, Any]:
    """Returns the JSON object of a request with exactly these fields. Refusal says what is wrong with it."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refusal(415, tr("The body must be JSON, and its Content-Type application/json."))
    try:
        found = json.loads(await _bytes(request, MAX_BODY))
    except (ValueError, RecursionError):
        raise Refusal(400, tr("The body is not JSON.")) from None
    if not isinstance(found, dict):
        raise Refusal(400, tr("The body must be a JSON object."))
    if unknown := found.keys() - fields.keys():
        raise Refusal(400, tr("Unknown field: {names}.", names=", ".join(sorted(name[:40] for name in unknown))))
    for name, kind in fields.items():
        if name not in found:
            raise Refusal(400, tr("The field {name} is missing.", name=name))
        if not isinstance(found[name], kind):
            raise Refusal(400, tr("The field {name} must be text.", name=name))
    return found


async def _bytes(request: Request, limit: int) -> bytes:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise Refusal(413, tr("The body may have at most {n} bytes.", n=limit))
    return data


# -- errors and origins ------------------------------------------------------------------------------
def _refused(request: Request, error: Refusal) -> Response:
    return JSONResponse({"error": error.sentence}, error.status, headers=NO_STORE)


def _http_error(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, headers={**NO_STORE, **(error.headers or {})})


def _left(request: Request, error: Exception) -> Response:
    return Response(status_code=400)


def _fault(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": tr("The server failed. Its log says why.")}, 500, headers=NO_STORE)


class Guard:
    """ASGI middleware: requests that change something come from the hall's own pages, and no answer is taken for another
    kind of file."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_safe(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            await send(message)

        if scope["method"] not in ("GET", "HEAD") and not is_own(Request(scope)):
            sentence = tr("This request comes from a page of another site.")
            await _refused(Request(scope), Refusal(403, sentence))(scope, receive, send_safe)
            return
        await self.app(scope, receive, send_safe)


def is_own(request: Request) -> bool:
    """Returns whether a page of this server sends a request, or no page at all."""
    sent_by = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = urlsplit(origin).netloc if origin else request.headers.get("host")
    return sent_by in ("same-origin", "none") and host == request.headers.get("host")


def application(site: Path) -> Starlette:
    """Returns the server of a site."""
    recorder = Recorder(site)
    runs = Runs(recorder)

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(one) for one in (recorder.begin(), _connect(runs), runs.follow_pool())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            recorder.close()

    handlers = {Refusal: _refused, HTTPException: _http_error, ClientDisconnect: _left, Exception: _fault}
    hall = Starlette(routes=Api(recorder, runs).routes(), exception_handlers=handlers)
    gif = [route for route in stage_routes() if route.path.endswith("/gif")]
    routes = [Mount("/hall", hall), *gif, Mount("/", SiteFiles(site))]
    return Starlette(routes=routes, middleware=[Middleware(Guard)], lifespan=running)


async def _connect(runs: Runs) -> None:
    """Starts the job service, so that no reader waits for it. The log says why it cannot be started; a run says it too."""
    try:
        await anyio.to_thread.run_sync(runs.connect)
    except JobError as error:
        log.warning("hall: %s", error)
