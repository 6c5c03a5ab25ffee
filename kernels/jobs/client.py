"""The app's end of the job service: it connects to the one of this machine, and starts it if there is none."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.jobs import place as places
from kernels.jobs.job import Job, JobError, Rows, Run, Work
from kernels.jobs.place import Place, settings, version
from kernels.jobs.service import COUNTS, IDLE_S, RUNS, TAKEN, Packed
from kernels.jobs.worker import CANCELLED, STOPPED
from kernels.model.row import Json

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ANSWER_S = 10.0  # for an answer of the service
START_S = 30.0  # for a new service
DRAIN_S = 3.0  # for an older service without work to make way
ENDED = "the job service ended while this waited or ran; run it again: a new service is started"
SILENT = f"the job service does not answer within {ANSWER_S:g} s; end its process, and the next run starts a new one"
BEHIND = (
    "the job service of this data folder belongs to a newer version of the app: start this app again, or give it a "
    "data folder of its own (KERNEL_THEATRE_DATA)"
)
BEING_DRAINED = "a job service of an older version of the app finishes its runs first; try again in a moment"


class Lost(Exception):
    """The connection to the service broke."""


class JobService:
    """The job service of a data folder, for one app. It is started with the first request, and again after it ended.

    on_rows: called with the rows of runs that the service could not store. runs, counts, idle_s: see service.py; they are
    for a service that this app starts.
    """

    def __init__(
        self,
        place: Place | None = None,
        on_rows: Callable[[Rows], str | None] | None = None,
        runs: str = "kernels.jobs.child",
        counts: str = "kernels.jobs.counter",
        idle_s: float = IDLE_S,
    ):
        self._place, self._on_rows = place, on_rows
        self._options = ["--runs", runs, "--counts", counts, "--idle", str(idle_s)]
        self._lock = threading.Lock()  # of connecting
        self._link: Link | None = None
        self._process: subprocess.Popen | None = None
        self._closed = False
        self.queues = {name: Queue(self, name) for name in (RUNS, COUNTS)}

    def close(self) -> None:
        """Leaves the service; every job of this app that is not done ends with an error."""
        self._closed = True
        with self._lock:
            if self._link:
                self._link.close(STOPPED)

    def link(self) -> Link:
        """Returns the connection. JobError says why there is none."""
        with self._lock:
            if self._closed:
                raise JobError("the worker is closed")
            if not (self._link and self._link.alive):
                self._link = Link(self._connect(), self)
            return self._link

    def finished(self, rows: Rows | None, note: str) -> None:
        """Called with what the service says of a run. `note`: why it could not store the rows."""
        if rows is not None and note and self._on_rows:
            self._on_rows(rows)

    # -- connecting ----------------------------------------------------------------------------
    def _connect(self) -> Connection:
        place = self._place or _here()
        with contextlib.suppress(Lost):
            return _dial(place)
        with place.lock("start"):  # of several apps one starts it
            with contextlib.suppress(Lost):
                return _dial(place)
            return self._start(place)

    def _start(self, place: Place) -> Connection:
        """Starts a service and connects to it. While an older one finishes its runs, none can start."""
        begin = time.monotonic()
        while True:
            process = self._process = _launch(place, self._options)
            while process.poll() is None and time.monotonic() - begin < START_S:
                with contextlib.suppress(Lost):
                    return _dial(place)
                time.sleep(0.02)
            if process.returncode != TAKEN or time.monotonic() - begin > DRAIN_S:
                break
            with contextlib.suppress(Lost):  # another one was started by hand
                return _dial(place)
            time.sleep(0.1)
        if process.returncode is None:
            process.kill()
            raise JobError(f"the job service did not start within {START_S:g} s; {place.file('log')} says why")
        if process.returncode == TAKEN:
            raise JobError(BEING_DRAINED)
        raise JobError(
            f"the job service does not start (exit status {process.returncode}); {place.file('log')} says why"
        )


class Queue:
    """One queue of the service, with the interface of kernels.jobs.Worker."""

    def __init__(self, service: JobService, name: str):
        self._service, self._name = service, name
        self.count = 0  # of the runs that wait, as the service said last
        self.on_rows: Callable[[Rows], None] | None = None  # called with the rows of every app's executions

    def connect(self) -> None:
        """Connects to the service, and starts it if there is none. JobError says why it cannot."""
        self._service.link()

    def submit(self, request: Work, owner: str = "", fresh: bool = False) -> Job:
        """As Worker.submit. JobError also says why there is no service."""
        text = str(request.shape)
        packed = Packed(request.label, text, request.key(), request.packed(), request.CACHED)
        for last in (False, True):  # a service may end, being idle, while this connects
            try:
                return self._service.link().submit(self, request, packed, owner, fresh)
            except Lost:
                if last:
                    raise JobError(ENDED) from None
        raise AssertionError

    def position(self, job: Job) -> int:
        return 0 if job.done else job._run.ahead

    def waiting(self) -> int:
        return self.count

    def cancel(self, job: Job, running: bool = True) -> None:
        link = self._service._link
        if link and not job.done:
            link.cancel(job, running)

    def close(self) -> None:
        self._service.close()

    @property
    def name(self) -> str:
        return self._name


class Link:
    """A connection, and the jobs that were submitted through it."""

    def __init__(self, connection: Connection, service: JobService):
        self._connection, self._service = connection, service
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # of sending and of the fields below
        self._jobs: dict[int, tuple[Queue, Job]] = {}
        self._answers: dict[int, tuple[threading.Event, list[str]]] = {}
        self.alive = True
        threading.Thread(target=self._read, name="job service", daemon=True).start()

    def submit(self, queue: Queue, request: Work, packed: Packed, owner: str, fresh: bool) -> Job:
        job = Job(request, owner, Run(packed.content_key, b"", packed.CACHED))
        answered, refusals = threading.Event(), []
        with self._lock:
            number = next(self._numbers)
            self._jobs[number] = queue, job
            self._answers[number] = answered, refusals
        self._send("submit", number, queue.name, packed, owner, fresh)
        in_time = answered.wait(ANSWER_S)
        with self._lock:
            self._answers.pop(number, None)
            if not in_time or refusals:
                self._jobs.pop(number, None)
        if not in_time:
            raise JobError(SILENT)
        if not self.alive and job._error == ENDED:
            raise Lost
        if refusals:
            raise JobError(refusals[0])
        return job

    def cancel(self, job: Job, running: bool) -> None:
        with self._lock:
            number = next((n for n, (_, each) in self._jobs.items() if each is job), None)
        if number is None:
            return
        with contextlib.suppress(Lost):
            self._send("cancel", number, running)
        if running:  # at once for its reader; the service needs a moment
            job.finish(error=CANCELLED)

    def close(self, reason: str) -> None:
        self._end(reason)
        with contextlib.suppress(Lost):  # the service closes the connection: here a thread reads it
            self._send("bye")

    def _send(self, *message: object) -> None:
        try:
            with self._lock:
                self._connection.send(message)
        except (OSError, ValueError):
            self._end(ENDED)
            raise Lost from None

    # -- the thread that reads -----------------------------------------------------------------
    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError, TypeError):  # TypeError: it was closed here
            while True:
                self._handle(self._connection.recv())
        self._end(ENDED)

    def _handle(self, message: tuple) -> None:
        match message:
            case ("rows", name, rows):
                queue = self._service.queues[name]
                if queue.on_rows:
                    queue.on_rows(rows)
            case ("refused", number, reason):
                with self._lock:
                    answered, refusals = self._answers.get(number, (None, []))
                refusals.append(reason)
                if answered:
                    answered.set()
            case ("states", name, waiting, states):
                self._service.queues[name].count = waiting
                for state in states:
                    self._advance(*state)
            case ("done", number, rows, error, cached_at, note):
                with self._lock:
                    _, job = self._jobs.pop(number, (None, None))
                if job:
                    job.finish(rows, error, cached_at)
                    self._service.finished(rows, note)
                self._answer(number)

    def _advance(self, number: int, ahead: int, share: float, text: str, parts: tuple) -> None:
        """Stores the state of a job."""
        with self._lock:
            _, job = self._jobs.get(number, (None, None))
        if job:
            run = job._run
            run.ahead, run.share, run.text, run.parts = ahead, share, text, (*run.parts, *parts)
            job.tell()
        self._answer(number)

    def _answer(self, number: int) -> None:
        """Lets `submit` return a job: its state is known."""
        with self._lock:
            answered, _ = self._answers.get(number, (None, None))
        if answered:
            answered.set()

    def _end(self, reason: str) -> None:
        with self._lock:
            self.alive = False
            left, self._jobs = list(self._jobs.values()), {}
            answers = list(self._answers.values())
        for _, job in left:
            job.finish(error=reason)
        for answered, _ in answers:
            answered.set()


def _here() -> Place:
    try:
        return places.here()
    except OSError as error:
        raise JobError(f"there is no place for the job service: {error}") from None


def _dial(place: Place) -> Connection:
    """Returns what `_shake_hands` returns. JobError if a service that hangs does not answer within ANSWER_S."""
    results: list[Connection] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(_shake_hands(place))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    if errors:
        raise errors[0]
    if not results:
        raise JobError(SILENT)
    return results[0]


def _shake_hands(place: Place) -> Connection:
    """Connects to the service of a place. Lost if there is none, or an older one, which makes way. JobError if this app
    cannot use it."""
    # Here and not above: Python in a browser cannot import it, and needs no service.
    from multiprocessing import AuthenticationError
    from multiprocessing.connection import Client, answer_challenge, deliver_challenge

    address = place.address()
    if address is None:
        raise Lost
    try:
        connection = Client(address.socket)
        key = place.key()
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
        connection.send_bytes(json.dumps({"version": version(), "settings": settings()}).encode())
        welcome = json.loads(connection.recv_bytes())
    except AuthenticationError:
        raise JobError(
            f"the key of the job service, {place.file('key')}, is not the service's: delete both, or end it"
        ) from None
    except (OSError, EOFError, ValueError):
        raise Lost from None
    theirs = tuple(welcome["version"])
    if theirs == version():
        if welcome["settings"] != settings():
            connection.close()
            raise JobError(_other_settings(welcome["settings"]))
        return connection
    if theirs < version():
        with contextlib.suppress(OSError):
            connection.send(("drain",))
    connection.close()
    if theirs > version():
        raise JobError(BEHIND)
    raise Lost


def _other_settings(theirs: dict[str, str]) -> str:
    name, value = next((n, v) for n, v in settings().items() if theirs.get(n, "") != v)
    return (
        f"the job service of this data folder was started with {name}={theirs.get(name, '') or 'not set'}, this app has "
        f"{value or 'not set'}: start all apps of a data folder with the same value"
    )


def _launch(place: Place, options: list[str]) -> subprocess.Popen:
    """Starts a service that outlives this process."""
    detached: Json = (
        {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
        if sys.platform == "win32"
        else {"start_new_session": True}
    )
    try:
        with place.file("log").open("ab") as log:
            if log.tell() > 1_000_000:
                log.truncate(0)
            return subprocess.Popen(
                [sys.executable, "-m", "kernels.jobs.service", str(place.folder), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=places.ROOT,
                **detached,
            )
    except OSError as error:
        raise JobError(f"the job service cannot be started: {error}") from None
