"""One child process and the thread that reads and writes its pipes, so that no other thread waits on a pipe."""

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
GONE = "gone"


class Process:
    """A child process. It sends ("ready",) before each request. During a request it sends ("progress", share, text)
    and ("part", anything), at the end ("rows", rows) or ("error", text, usable). ("gone", reason) follows when it ended or was killed."""

    def __init__(self, module: str):
        self.was_ready = False  # at any time
        self.idle = False  # it is ready and has no request
        self._killed = False
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[tuple] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        threading.Thread(target=self._exchange, name=f"kernel process {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._killed and self._process.poll() is None

    def send(self, packed: bytes) -> None:
        self.idle = False
        self._requests.put(packed)

    def next_message(self, timeout: float) -> tuple | None:
        """Returns the next message; None if none came in `timeout` seconds."""
        try:
            return self._messages.get(timeout=max(timeout, 0))
        except queue.Empty:
            return None

    def kill(self) -> None:
        """Kill the process. ("gone", ...) is queued at once: a process stuck in a driver may end much later."""
        self._killed = True
        self._process.kill()
        self._messages.put((GONE, "it was stopped"))
        self._requests.put(None)

    # -- the thread of the pipes ---------------------------------------------------------------
    def _exchange(self) -> None:
        reason = ""
        try:
            while True:
                message = pickle.loads(framing.receive(self._from))
                self.was_ready = self.was_ready or message[0] == "ready"
                self._messages.put(message)
                if message[0] == "ready":
                    if (packed := self._requests.get()) is None:
                        break
                    framing.send(self._to, packed)
                    del packed
        except (EOFError, OSError):
            pass
        except Exception as e:  # bytes that are no message raise anything when unpickled
            reason = f"it answered nothing that makes sense: {type(e).__name__}: {e}"
            self._process.kill()
        self._messages.put((GONE, reason or self._exit_reason()))
        self._close()

    def _exit_reason(self) -> str:
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it closed its pipe but still runs
            self._process.kill()
            return "it stopped answering"
        if code >= 0:
            return f"exit status {code}"
        name = signal.Signals(-code).name if -code in {int(s) for s in signal.Signals} else f"signal {-code}"
        return name + (", perhaps for want of memory" if name == "SIGKILL" else "")

    def _close(self) -> None:
        for pipe in (self._to, self._from):
            with contextlib.suppress(OSError):  # buffered bytes can no longer be sent
                pipe.close()
        self._process.wait()
