"""One child process and the thread that talks with it, so that nobody else ever waits on a pipe."""

from __future__ import annotations

import contextlib
import pickle
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from kernels.jobs import framing

ROOT = Path(__file__).parents[2]
LAST = ("rows", "error")  # the messages that end a request
GONE = "gone"


class Process:
    """Says ("ready",) before each request; then takes one and answers ("progress", share, text) and at
    last ("rows", rows) or ("error", text, stays). ("gone", how) comes when it ended or was killed."""

    def __init__(self, module: str):
        self.was_ready = False  # ever
        self.idle = False  # it said so and was not asked yet
        self._killed = False
        self._asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        threading.Thread(target=self._talk, name=f"kernel process {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._killed and self._process.poll() is None

    def ask(self, packed: bytes) -> None:
        self.idle = False
        self._asked.put(packed)

    def answer(self, timeout: float) -> tuple | None:
        """The next message; None where none came in time."""
        try:
            return self._answers.get(timeout=max(timeout, 0))
        except queue.Empty:
            return None

    def kill(self) -> None:
        """At once for whoever waits: a process stuck in a driver may take its time to die."""
        self._killed = True
        self._process.kill()
        self._answers.put((GONE, "it was stopped"))
        self._asked.put(None)

    # -- the talking thread --------------------------------------------------------------------
    def _talk(self) -> None:
        how = ""
        try:
            while True:
                message = pickle.loads(framing.receive(self._process.stdout))
                self.was_ready = self.was_ready or message[0] == "ready"
                self._answers.put(message)
                if message[0] == "ready":
                    if (packed := self._asked.get()) is None:
                        break
                    framing.send(self._process.stdin, packed)
                    del packed
        except (EOFError, OSError):
            pass
        except Exception as e:  # bytes that are no message raise anything when unpickled
            how = f"it answered nothing that makes sense: {type(e).__name__}: {e}"
            self._process.kill()
        self._answers.put((GONE, how or self._how_it_ended()))
        self._bury()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            self._process.kill()
            return "it stopped answering"
        if code >= 0:
            return f"exit status {code}"
        name = signal.Signals(-code).name if -code in {int(s) for s in signal.Signals} else f"signal {-code}"
        return name + (", perhaps for want of memory" if name == "SIGKILL" else "")

    def _bury(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not sent yet has nowhere to go
                pipe.close()
        self._process.wait()
