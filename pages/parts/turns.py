"""Lets the pages of many readers be drawn one after the other, each up to its stage first.

One core draws all pages of a process. If twenty threads draw at once, each takes twenty times as long, and all stages come
late. In turns, the first stages come early, and on average all come earlier. The cards of a page follow after the stages
that wait.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 0.5  # a page that waits for a disk or a database delays the others by no more


class Turns:
    """Which thread may draw."""

    def __init__(self, patience_s: float = PATIENCE_S):
        self._patience_s, self._lock = patience_s, threading.Lock()
        self._drawing: int | None = None  # the thread
        self._since = 0.0  # time.monotonic() when its turn began
        # Of each thread that waits: when it is due, its number and what begins its turn. Stages, cards.
        self._waiting: tuple[deque[tuple[float, int, threading.Event]], ...] = deque(), deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits until no other thread draws, and prevents others from it until the end of the block."""
        self._take(0)
        try:
            yield
        finally:
            self._pass_on()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Lets other threads draw during the block. What follows it comes after the stages that wait by then, and after those
        that come in the next PATIENCE_S."""
        had_turn = self._pass_on()
        try:
            yield
        finally:
            if had_turn:
                self._take(1)

    def _take(self, rank: int) -> None:
        begins = threading.Event()
        with self._lock:
            due = time.monotonic() + rank * self._patience_s
            self._waiting[rank].append((due, threading.get_ident(), begins))
            if self._drawing is None:
                self._begin_next()
            left = self._left_s()
        while not begins.wait(left):
            with self._lock:
                if self._left_s() <= 0:  # the page that draws takes long; it goes on beside the next one
                    self._begin_next()
                left = self._left_s()

    def _left_s(self) -> float:
        """Returns the seconds until the turn goes on to the next thread in any case."""
        return self._since + self._patience_s - time.monotonic()

    def _begin_next(self) -> None:
        first = min(filter(None, self._waiting), key=lambda queue: queue[0][0], default=None)
        _, self._drawing, begins = first.popleft() if first else (0.0, None, None)
        self._since = time.monotonic()
        if begins:
            begins.set()

    def _pass_on(self) -> bool:
        """Returns whether this thread had the turn, and gives it to the next."""
        with self._lock:
            if self._drawing != threading.get_ident():
                return False
            self._begin_next()
            return True


TURNS = Turns()
