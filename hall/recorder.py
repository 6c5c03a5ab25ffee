"""The process that records pages, seen from the hall's: one answer at a time, those of many readers in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hall import pages
from hall.pages import Refusal
from kernels.i18n import tr

MAX_WAITING = 200  # requests: about four seconds of work
ANSWER_S = 60.0  # a page that takes longer is given up, with its process
MAX_STRIPS = 4096  # that are kept; one is about 5 KB, so 20 MB


class Recorder:
    """Asks `hall.pages` in its process. A process that ended or hangs is replaced: what it kept of readers is gone, their
    rows are in the store."""

    def __init__(self, site: Path):
        self._site, self._waiting = site, 0
        self._pool = self._started()
        self._strips: OrderedDict[Hashable, asyncio.Future] = OrderedDict()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, get_context("spawn"), initializer=pages.begin, initargs=(self._site,))

    async def ask(self, name: str, *args: Any) -> Any:
        """Returns the answer of a function of `hall.pages.Pages`. Refusal as it raises it, or if there is none."""
        return await self._submit(pages.call, name, *args)

    async def begin(self) -> None:
        """Starts the process, and draws each lesson of the site once: its code is imported before a reader waits for it."""
        for path in await self._submit(pages.paths):
            if (self._site / path / "index.html").is_file():
                with contextlib.suppress(Refusal):
                    await self.strip(path, {})

    async def strip(self, path: str, params: Mapping[str, str]) -> Any:
        """Returns the strip of an address on this machine. It is the same for all readers, so it is drawn once."""
        key = path, tuple(sorted(params.items()))
        if (found := self._strips.get(key)) is None:
            found = self._strips[key] = asyncio.ensure_future(self.ask("strip", path, params))
            found.add_done_callback(partial(self._forget_unless_final, key))
            while len(self._strips) > MAX_STRIPS:
                self._strips.popitem(last=False)
        strip, _ = await asyncio.shield(found)
        return strip

    def _forget_unless_final(self, key: Hashable, done: asyncio.Future) -> None:
        is_final = not done.cancelled() and done.exception() is None and done.result()[1]
        if not is_final and self._strips.get(key) is done:
            del self._strips[key]

    async def _submit(self, function: Callable, *args: Any) -> Any:
        if self._waiting >= MAX_WAITING:
            raise Refusal(503, tr("The server draws pages for many readers now. Try again in a few seconds."))
        self._waiting += 1
        pool = self._pool
        try:
            return await asyncio.wait_for(asyncio.wrap_future(pool.submit(function, *args)), ANSWER_S * self._waiting)
        except (BrokenProcessPool, TimeoutError):
            self._replace(pool)
            raise Refusal(503, tr("The process that draws pages ended. It is started again. Try again.")) from None
        finally:
            self._waiting -= 1

    def _replace(self, pool: ProcessPoolExecutor) -> None:
        """Starts another process, once for all that waited for this one."""
        if self._pool is pool:
            self._pool = self._started()
            _end(pool)

    def close(self) -> None:
        _end(self._pool)


def _end(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())  # a hanging page takes no notice of shutdown
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
