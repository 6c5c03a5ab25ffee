"""The runs that readers started: from a press on a page to its result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread

from hall.pages import Pressed, Refusal, Submitted
from hall.recorder import Recorder
from kernels import activity
from kernels.i18n import tr
from kernels.jobs import here
from kernels.jobs.client import Queue
from kernels.jobs.job import Job, JobError, Rows
from kernels.jobs.pool import Pool
from kernels.jobs.worker import Worker

MAX_RUNS = 4096  # that are remembered; the oldest goes first
PAUSE_S = 0.2  # between two news of one run
WATCH_S = 5.0  # between two looks for the machines of a pool
ALIVE_S = 15.0  # between two lines to a waiting browser: proxies end a silent answer

log = logging.getLogger(__name__)


@dataclass(eq=False)
class HallRun:
    """What a press started: jobs by their number on the page."""

    session: str
    path: str
    params: Mapping[str, str]
    name: str = field(default_factory=lambda: secrets.token_hex(16))
    jobs: dict[int, Job] = field(default_factory=dict)  # that have not ended, each shown by the page
    turn: int = 0  # how many jobs have ended: the page shows more then

    @property
    def done(self) -> bool:
        return not self.jobs


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

    async def press(
        self, session: str, path: str, params: Mapping[str, str], key: str, pressed: Mapping[str, str]
    ) -> tuple[HallRun | None, Pressed]:
        """Returns what a press started, None if it started nothing, and the page after it. Refusal says why nothing runs."""
        found: Pressed = await self._recorder.ask("press", session, path, params, key, pressed)
        await self._cancel(session, found.cancelled)
        if not found.submitted:
            return None, found
        run = HallRun(session, path, params)
        for submitted in found.submitted:
            try:
                await self._begin(run, submitted)
            except JobError as error:
                await self._settle(run, submitted.number, error=str(error))
                raise Refusal(503, str(error)) from None
        self._runs[run.name] = run
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return run, found

    async def _begin(self, run: HallRun, submitted: Submitted) -> None:
        """Submits a job of a page, and follows it. JobError if it cannot be submitted."""
        number, request, owner, fresh, device = submitted
        more = {"device": device} if device else {}
        job = await anyio.to_thread.run_sync(lambda: self.queue.submit(request, owner, fresh, **more))
        run.jobs[number] = job
        task = asyncio.create_task(self._follow(run, number, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, run: HallRun, number: int, job: Job) -> None:
        """Gives the page the result of a job."""
        await _ended(job)
        rows, error = None, ""
        try:
            rows = job.result(0)
        except JobError as e:
            error = str(e)
        try:
            await self._settle(run, number, rows, error, job.measured_at)
        except Refusal as refusal:  # the page's process ended; the rows are in the store
            log.warning("hall: %s", refusal.sentence)
        del run.jobs[number]

    async def _settle(
        self, run: HallRun, number: int, rows: Rows | None = None, error: str = "", measured_at: float | None = None
    ) -> None:
        """Tells a page of the end of a job. It may submit the next one then: of a series, of a training."""
        result = number, rows, error, measured_at
        found: Pressed = await self._recorder.ask("finish", run.session, run.path, run.params, *result)
        run.turn += 1
        for submitted in found.submitted:
            try:
                await self._begin(run, submitted)
            except JobError as refused:
                await self._settle(run, submitted.number, error=str(refused))

    def found(self, name: str, session: str) -> HallRun:
        """Returns a run of a session. Refusal if it has none of this name."""
        run = self._runs.get(name)
        if run is None or run.session != session:
            raise Refusal(404, tr("The server does not know this run. If it has ended, its result is in History."))
        return run

    async def stop(self, run: HallRun) -> None:
        await self._cancel(run.session, tuple(run.jobs))

    async def _cancel(self, session: str, numbers: Iterable[int]) -> None:
        jobs = {
            number: job for run in self._runs.values() if run.session == session for number, job in run.jobs.items()
        }
        for number in numbers:
            if number in jobs:
                await anyio.to_thread.run_sync(self.queue.cancel, jobs[number])

    def state(self, run: HallRun) -> dict[str, Any]:
        """Returns how far a run is, as the page of a browser shows it."""
        job = next(iter(run.jobs.values()), None)
        found = {"done": run.done, "turn": run.turn}
        return found | ({"share": job.share, "text": activity.place(job.text, self.queue.position(job))} if job else {})

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
