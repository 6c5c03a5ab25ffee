"""The job service: the one process of a machine that times kernels and counts them, for every app that uses its data folder.
python -m kernels.jobs.service FOLDER [--runs MODULE] [--counts MODULE] [--idle SECONDS]

An app starts it on demand (client.py). It outlives the apps, and ends when no app was connected and nothing ran for
IDLE_S. It listens on a socket in the data folder; whoever connects must have the key in that folder.

Messages. An app: hello (JSON), then tuples: ("submit", number, queue, Packed, owner, fresh), ("cancel", number, running),
("drain",), ("bye",). The service: welcome (JSON), then ("refused", number, reason); ("states", queue, waiting, states) with
(number, ahead, share, text, new parts) of each job whose state has changed; ("done", number, rows, error, cached_at, note);
("rows", queue, rows) for each execution of the queue of counts. The first message about a number answers its submission.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.jobs.job import Job, JobError, Rows, Run
from kernels.jobs.place import Address, Place, settings, version
from kernels.jobs.worker import Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection, Listener
from kernels.records import folder, store

RUNS, COUNTS = "runs", "counts"  # the queues
COUNTS_DEADLINE_S = 60.0
IDLE_S = 60.0
LOOK_S = 2.0  # between two looks for the service's own address
# Between two reports of the states of a queue's jobs. Readers see the progress of a run at once, but the place of a count
# only when their page is drawn again. The end of a job is reported at once.
PUSH_S = {RUNS: 0.05, COUNTS: 1.0}
TAKEN = 3  # exit status: another service has the folder
BACKLOG = 128
DRAINING = "the job service finishes its last runs and then makes way for a newer one; try again in a moment"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packed:
    """A request as it goes to the service, which never unpacks it."""

    label: str
    text: str  # its shape
    content_key: Hashable
    content: bytes
    CACHED: bool

    @property
    def shape(self) -> str:
        return self.text

    def key(self) -> Hashable:
        return self.content_key

    def packed(self) -> bytes:
        return self.content


class Service:
    """The queues, and the apps that are connected."""

    def __init__(self, place: Place, runs: str, counts: str):
        self.place, self._key = place, place.key()
        self.queues = {
            RUNS: Worker(module=runs, on_rows=self._save),
            COUNTS: Worker(COUNTS_DEADLINE_S, counts, on_rows=self._report_counts),
        }
        self.draining = threading.Event()
        self._changed = threading.Condition()
        self._peers: set[Peer] = set()
        self._store = store.Store(folder.database() or place.folder / folder.FILE)
        self.address: Address | None = None

    # -- its life ------------------------------------------------------------------------------
    def serve(self, idle_s: float) -> None:
        """Listens until no app was connected and nothing ran for `idle_s`, or until it is drained."""
        listener = self._listen()
        socket = str(listener.address)
        self.address = Address(socket, os.getpid(), version(), settings())
        self.place.publish(self.address)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        for name in self.queues:
            threading.Thread(target=self._push, args=(name,), daemon=True).start()
        try:
            self._wait_for_the_end(idle_s)
        finally:
            self.place.withdraw(self.address)
            _remove_socket(socket)
            for worker in self.queues.values():
                worker.close()

    def _listen(self) -> Listener:
        from multiprocessing.connection import Listener  # Python in a browser imports this module, but not that one

        for old in self.place.folder.glob(self.place.file("*.sock").name):
            old.unlink(missing_ok=True)  # of services that were killed
        before = os.umask(0o077)
        try:
            return Listener(self.place.new_socket(), backlog=BACKLOG)
        finally:
            os.umask(before)

    def _wait_for_the_end(self, idle_s: float) -> None:
        idle_since = looked = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait(min(LOOK_S, idle_s))
                busy, now = any(worker.busy() for worker in self.queues.values()), time.monotonic()
                if self.draining.is_set() and not busy:
                    return
                if busy or self._peers:
                    idle_since = now
                elif now - idle_since >= idle_s:
                    return
            if now - looked < LOOK_S:
                continue
            looked = now
            if self.place.address() != self.address:  # its folder was removed, or another program wrote there
                self.drain()

    def drain(self) -> None:
        """Takes no new requests, and ends when those it has are done. Its address is gone at once."""
        self.draining.set()
        if self.address is not None:
            self.place.withdraw(self.address)
        self.wake()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- the apps ------------------------------------------------------------------------------
    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except OSError:  # an app left before it was accepted
                continue
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: Connection) -> None:
        """Serves one app until it leaves."""
        from multiprocessing import AuthenticationError
        from multiprocessing.connection import answer_challenge, deliver_challenge

        peer = None
        with contextlib.suppress(EOFError, OSError, AuthenticationError), connection:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            json.loads(connection.recv_bytes())  # hello: a newer app may say more
            connection.send_bytes(json.dumps({"version": version(), "settings": settings()}).encode())
            peer = Peer(self, connection)
            with self._changed:
                self._peers.add(peer)
            while (message := connection.recv()) != ("bye",):
                peer.handle(message)
        if peer:
            peer.leave()
            with self._changed:
                self._peers.discard(peer)
                self._changed.notify_all()

    def peers(self) -> list[Peer]:
        with self._changed:
            return list(self._peers)

    def _push(self, name: str) -> None:
        """Reports the changes in a queue to the apps, at most every PUSH_S."""
        seen, worker = -1, self.queues[name]
        while True:
            seen = worker.next_change(seen, 3600)
            positions = worker.positions()
            for peer in self.peers():
                peer.report(name, positions)
            if not positions:
                self.wake()
            time.sleep(PUSH_S[name])

    # -- results -------------------------------------------------------------------------------
    def _save(self, rows: Rows) -> str:
        """Stores measured rows of rungs, even if no app is left. Returns why they could not be stored, or ""."""
        return self._store.save([row for row in rows if "median_ms" in row and "rung" in row])

    def _report_counts(self, rows: Rows) -> None:
        for peer in self.peers():
            peer.send("rows", COUNTS, rows)


class Peer:
    """An app that is connected: its jobs by their number."""

    def __init__(self, service: Service, connection: Connection):
        self.service = service
        self._jobs: dict[int, tuple[str, Job]] = {}
        self._reported: dict[int, tuple] = {}
        self._lock = threading.Lock()  # of both; a thread that holds it takes no lock of a worker
        self._outbox: queue.SimpleQueue[tuple | None] = (
            queue.SimpleQueue()
        )  # no other thread waits for an app that does not read
        threading.Thread(target=self._write, args=(connection,), daemon=True).start()

    def handle(self, message: tuple) -> None:
        match message:
            case ("submit", number, name, request, owner, fresh):
                self._submit(number, name, request, owner, fresh)
            case ("cancel", number, running) if number in self._jobs:
                name, job = self._jobs[number]
                self.service.queues[name].cancel(job, running)
            case ("drain",):
                self.service.drain()

    def _submit(self, number: int, name: str, request: Packed, owner: str, fresh: bool) -> None:
        if self.service.draining.is_set():
            self.send("refused", number, DRAINING)
            return
        try:
            job = self.service.queues[name].submit(request, owner, fresh)
        except JobError as error:
            self.send("refused", number, str(error))
            return
        position, waiting = self.service.queues[name].position(job), self.service.queues[name].waiting()
        with self._lock:
            self._jobs[number] = name, job
            if not job.done:  # else its result is the answer
                self.send("states", name, waiting, self._changes([(number, job)], {job._run: position}))
        job.listen(partial(self._report_end, number))
        self._report_end(number)  # of a job that was done before this listened

    def report(self, name: str, positions: Mapping[Run, int]) -> None:
        """Sends the states of this app's jobs in a queue that have changed. `positions`: those of the runs that wait."""
        with self._lock:
            jobs = [(number, job) for number, (of, job) in self._jobs.items() if of == name]
            if states := self._changes(jobs, positions):
                self.send("states", name, len(positions), states)

    def _changes(self, jobs: Sequence[tuple[int, Job]], positions: Mapping[Run, int]) -> list[tuple]:
        """Returns the states that differ from those that were sent last; called with the lock held."""
        states = []
        for number, job in jobs:
            parts, last = job.parts, self._reported.get(number)
            state = positions.get(job._run, 0), job.share, job.text, len(parts)
            if state != last:
                self._reported[number] = state
                states.append((number, *state[:3], parts[last[3] if last else 0 :]))
        return states

    def _report_end(self, number: int) -> None:
        """Sends the result of a job that is done. The worker calls this with its lock held, after each change of the job."""
        with self._lock:
            _, job = self._jobs.get(number, (None, None))
            if job is None or not job.done:
                return
            del self._jobs[number]
            self._reported.pop(number, None)
        cached_at = job.measured_at if job.cached else None
        self.send("done", number, job._rows, job._error, cached_at, job._run.note)

    def send(self, *message: object) -> None:
        self._outbox.put(message)

    def leave(self) -> None:
        """Cancels what waits. What runs goes on: its rows are stored."""
        self._outbox.put(None)
        with self._lock:
            left, self._jobs = list(self._jobs.values()), {}
        for name, job in left:
            self.service.queues[name].cancel(job, running=False)

    def _write(self, connection: Connection) -> None:
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                connection.send(message)


def _remove_socket(address: str) -> None:
    if sys.platform == "win32":
        return
    path = Path(address)
    path.unlink(missing_ok=True)
    if path.parent.name.startswith("kernel-theatre-") and path.parent.parent == Path(tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.jobs.service")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", default="kernels.jobs.child", help="the module of the process that runs kernels")
    parser.add_argument("--counts", default="kernels.jobs.counter", help="the module of the process that counts")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="ends after so many seconds without an app")
    args = parser.parse_args(arguments)
    place = Place(args.folder)
    with place.lock("lock", wait=False) as free:
        if not free:
            return TAKEN
        Service(place, args.runs, args.counts).serve(args.idle)
    return 0


if __name__ == "__main__":
    sys.exit(main())
