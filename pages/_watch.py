"""The route by which a page learns of what it waits for: a browser asks once, and the answer comes when there is news.

A rerun of a page takes tens of milliseconds of the server, a waiting request next to nothing. So no page polls for counts
and progress by reruns.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pages.parts import watch as watches
from pages.parts.watch import PATH

WAIT_S = 25.0  # proxies end a request that waits for a minute
PAUSE_S = 0.2  # between two answers about one thing: many readers wait for the same runs


def routes(base: str = "") -> list[Route]:
    """Returns the route for st.App. base: server.baseUrlPath, which Streamlit puts only before its own routes."""
    prefix = f"/{base.strip('/')}".rstrip("/")
    return [Route(f"{prefix}/{PATH}/{{token}}", _answer)]


async def _answer(request: Request) -> Response:
    """Returns the state when its tag differs from the one that the browser has seen, or after WAIT_S. If only the end is
    news, it waits for that: a hundred readers wait for counts, and each count changes the place of all others."""
    watch = watches.found(request.path_params["token"])
    state = {"gone": True} if watch is None else await _news(watch, request.query_params.get("seen", ""))
    return JSONResponse(state, headers={"Cache-Control": "no-store"})


async def _news(watch: watches.Watch, seen: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    changed, end = asyncio.Event(), loop.time() + WAIT_S

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the server stops
            loop.call_soon_threadsafe(changed.set)

    async def wait(seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), seconds)

    stop = watch.listen(wake)
    try:
        if watch.at_end and (due := watch.due_s()):  # nothing can have ended before
            await wait(due)
        while not watch.gone():
            changed.clear()
            state = await anyio.to_thread.run_sync(watch.read)
            left = end - loop.time()
            is_news = state["done"] if watch.at_end else state["tag"] != seen
            if is_news or left <= 0:
                return state
            due = watch.due_s()
            await wait(left if due is None else min(left, due))
            if not watch.gone():
                await asyncio.sleep(min(PAUSE_S, max(0.0, end - loop.time())))
        return {"done": True, "gone": True}
    finally:
        stop()
