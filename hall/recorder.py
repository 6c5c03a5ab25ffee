"""The process that records pages, seen from the hall's: one answer at a time, those of many readers in turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hall import pages
from hall.pages import Refusal
from kernels.i18n import tr

MAX_WAITING = 200  # requests: about four seconds of work
ANSWER_S = 60.0  # a page that takes longer is given up, with its process
MAX_KEPT = 4096  # answers that are the same for all readers; one is about 3 KB


class Recorder:
    """Asks `hall.pages` in its process. A process that ended or hangs is replaced: what it kept of readers is gone, their
    rows are in the store."""

    def __init__(self, site: Path):
        self._site, self._waiting = site, 0
        self._pool = self._started()
        self._kept: OrderedDict[Hashable, asyncio.Future] = OrderedDict()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, get_context("spawn"), initializer=pages.begin, initargs=(self._site,))

    async def ask(self, name: str, *args: Any) -> Any:
        """Returns the answer of a function of `hall.pages.Pages`. Refusal as it raises it, or if there is none."""
        return await self._submit(pages.call, name, *args)

    async def paths(self) -> list[str]:
        return await self._submit(pages.paths)

    async def kept(self, *key: Any) -> Any:
        """Returns an answer of `ask` that is the same for all readers, from memory if it was given before. The answer says
        in its last part whether it may be kept."""
        key = tuple(tuple(sorted(part.items())) if isinstance(part, dict) else part for part in key)
        if found := self._kept.get(key):
            self._kept.move_to_end(key)
            return await asyncio.shield(found)
        asked = asyncio.ensure_future(
            self.ask(key[0], *(dict(part) if isinstance(part, tuple) else part for part in key[1:]))
        )
        self._kept[key] = asked  # a reader that comes meanwhile waits for the same
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        asked.add_done_callback(lambda done: self._drop_unless_kept(key, done))
        return await asyncio.shield(asked)

    def _drop_unless_kept(self, key: Hashable, done: asyncio.Future) -> None:
        if self._kept.get(key) is done and (done.cancelled() or done.exception() or not done.result()[-1]):
            del self._kept[key]

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
