"""The runs that readers started: from a press on a page to its result."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread

from hall.pages import Pressed, Refusal, Submitted
from hall.recorder import Recorder
from kernels import activity
from kernels.i18n import tr
from kernels.jobs import here
from kernels.jobs.client import Queue
from kernels.jobs.job import Job, JobError
from kernels.jobs.pool import Pool
from kernels.jobs.worker import Worker

MAX_RUNS = 4096  # that are remembered; the oldest goes first
PAUSE_S = 0.2  # between two news of one run
WATCH_S = 5.0  # between two looks for the machines of a pool
ALIVE_S = 15.0  # between two lines to a waiting browser: proxies end a silent answer


@dataclass(eq=False)
class HallRun:
    """A run of a session, and where it was started."""

    session: str
    path: str
    params: Mapping[str, str]
    job: Job
    name: str = field(default_factory=lambda: secrets.token_hex(16))
    turn: int = 0  # how many of its jobs have ended: the page shows more then
    done: bool = False


class Runs:
    """Starts and follows runs. `queue` executes them; it is made with the first, or by `connect`."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._queue: Worker | Queue | None = None
        self._runs: OrderedDict[str, HallRun] = OrderedDict()
        self._tasks: set[asyncio.Task] = set()

    @property
    def queue(self) -> Worker | Queue:
        self._queue = self._queue or here.runs()
        return self._queue

    def connect(self) -> None:
        """Connects to the job service, and starts it if there is none. JobError if it cannot."""
        if isinstance(self.queue, Queue):
            self.queue.connect()

    async def follow_pool(self) -> None:
        """Tells the pages again and again which machines a pool has."""
        while isinstance(self.queue, Pool):
            machines = await anyio.to_thread.run_sync(self.queue.machines)
            with contextlib.suppress(Refusal):
                await self._recorder.ask("follow_pool", machines)
            await asyncio.sleep(WATCH_S)

    async def start(
        self, session: str, path: str, params: Mapping[str, str], stage: str, pressed: Mapping[str, str]
    ) -> tuple[HallRun, Mapping[str, Any]]:
        """Returns a new run and the strip that shows it. Refusal says why there is none."""
        found: Pressed = await self._recorder.ask("press", session, path, params, stage, pressed)
        try:
            job = await self._submit(session, found.submitted)
        except JobError as error:
            await self._recorder.ask("finish", session, path, params, None, str(error), None)
            raise Refusal(503, str(error)) from None
        run = HallRun(session, path, params, job)
        self._runs[run.name] = run
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        task = asyncio.create_task(self._follow(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run, found.strip

    async def _submit(self, session: str, submitted: Submitted) -> Job:
        request, fresh, card = submitted
        more = {"card": card} if card else {}
        return await anyio.to_thread.run_sync(lambda: self.queue.submit(request, session, fresh, **more))

    async def _follow(self, run: HallRun) -> None:
        """Gives the page the result of its job. A page may submit the next one then: a series, a training."""
        while True:
            await _ended(run.job)
            try:
                submitted = await self._finish(run)
                if submitted is None:
                    break
                run.job = await self._submit(run.session, submitted)
            except Refusal:  # the page was lost with its process; the rows are in the store
                break
            except JobError as error:
                await self._recorder.ask("finish", run.session, run.path, run.params, None, str(error), None)
                break
            run.turn += 1
        run.done = True

    async def _finish(self, run: HallRun) -> Submitted | None:
        rows, error = None, ""
        try:
            rows = run.job.result(0)
        except JobError as e:
            error = str(e)
        at = run.job.measured_at
        found: Pressed = await self._recorder.ask("finish", run.session, run.path, run.params, rows, error, at)
        return found.submitted

    def found(self, name: str, session: str) -> HallRun:
        """Returns a run of a session. Refusal if it has none of this name."""
        run = self._runs.get(name)
        if run is None or run.session != session:
            raise Refusal(404, tr("The server does not know this run. If it has ended, its result is in History."))
        return run

    async def stop(self, run: HallRun) -> None:
        await anyio.to_thread.run_sync(self.queue.cancel, run.job)

    def state(self, run: HallRun) -> dict[str, Any]:
        ahead = 0 if run.done else self.queue.position(run.job)
        return {"done": run.done, "share": run.job.share, "text": activity.place(run.job.text, ahead), "turn": run.turn}

    async def news(self, run: HallRun) -> AsyncIterator[dict[str, Any] | None]:
        """Yields the state of a run at once and after changes, until it has ended; None if nothing changed for ALIVE_S."""
        seen, silent = None, 0.0
        while True:
            if (state := self.state(run)) != seen:
                seen, silent = state, 0.0
                yield state
                if state["done"]:
                    return
            elif silent >= ALIVE_S:
                silent = 0.0
                yield None
            await asyncio.sleep(PAUSE_S)
            silent += PAUSE_S


async def _ended(job: Job) -> None:
    """Waits for the end of a job."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:  # in any thread
        if job.done:
            with contextlib.suppress(RuntimeError):  # the server stops
                loop.call_soon_threadsafe(ended.set)

    stop = job.listen(tell)
    tell()  # it may have ended before
    await ended.wait()
    stop()
