"""The route by which a page learns of what it waits for: a browser asks once, and the answer comes when there is news.

A rerun of a page takes tens of milliseconds of the server, a waiting request next to nothing. So no page polls for counts
and progress by reruns.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kernels import i18n

WAIT_S = 25.0  # proxies end a request that waits for a minute
PAUSE_S = 0.2  # between two answers about one thing: many readers wait for the same runs
PATH = "stage/watch"
APP = os.environ.get("KERNEL_THEATRE_APP", "app")  # its name in a hall, whose proxy finds this process by it

Stop = Callable[[], None]


@dataclass(eq=False)
class Watch:
    """Something that a page waits for.

    state: returns it as JSON, "done" in it at the end. It runs in a thread and may wait for the job service.
    listen: calls a function, in any thread, after each change, until the function that it returns is called.
    due_s: returns the seconds until `state` must be called again without a change, if any.
    """

    state: Callable[[], dict[str, Any]]
    listen: Callable[[Callable[[], None]], Stop]
    due_s: Callable[[], float | None] = lambda: None
    language: str = field(default_factory=i18n.language)
    token: str = field(default_factory=lambda: f"{APP}-{uuid.uuid4().hex}")

    def __post_init__(self) -> None:
        _watches[self.token] = self

    @property
    def path(self) -> str:
        """Returns the path of its route, without the app's base path."""
        return f"{PATH}/{self.token}"

    def read(self) -> dict[str, Any]:
        with i18n.using(self.language):
            state = self.state()
        text = json.dumps(state, sort_keys=True)
        return state | {"tag": hashlib.sha256(text.encode()).hexdigest()[:16]}


# A session holds what its page waits for. With the session it is gone from here.
_watches: WeakValueDictionary[str, Watch] = WeakValueDictionary()


def route(base: str = "") -> Route:
    """Returns the route for st.App. base: server.baseUrlPath."""
    prefix = f"/{base.strip('/')}".rstrip("/")
    return Route(f"{prefix}/{PATH}/{{token}}", _answer)


async def _answer(request: Request) -> Response:
    """Returns the state when its tag differs from the one that the browser has seen, or after WAIT_S."""
    watch = _watches.get(request.path_params["token"])
    state = {"gone": True} if watch is None else await _news(watch, request.query_params.get("seen", ""))
    return JSONResponse(state, headers={"Cache-Control": "no-store"})


async def _news(watch: Watch, seen: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    changed, end = asyncio.Event(), loop.time() + WAIT_S

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the server stops
            loop.call_soon_threadsafe(changed.set)

    stop = watch.listen(wake)
    try:
        while True:
            changed.clear()
            state = await anyio.to_thread.run_sync(watch.read)
            left = end - loop.time()
            if state["tag"] != seen or left <= 0:
                return state
            due = watch.due_s()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left if due is None else min(left, due))
            await asyncio.sleep(min(PAUSE_S, max(0.0, end - loop.time())))
    finally:
        stop()
