"""Lets the pages of many readers be drawn one after the other, each up to its stage first.

One core draws all pages of a process. If twenty threads draw at once, each takes twenty times as long, and all stages come
late. In turns, the first stages come early, and on average all come earlier. The cards of a page follow after the stages
that wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 0.5  # a page that waits for a disk or a database delays the others by no more


class Turns:
    """Which thread may draw."""

    def __init__(self, patience_s: float = PATIENCE_S):
        self._patience_s, self._lock = patience_s, threading.Lock()
        self._drawing: int | None = None  # the thread
        self._waiting: tuple[deque[tuple[int, threading.Event]], ...] = deque(), deque()  # stages, cards

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
        """Lets other threads draw during the block. What follows it comes after all stages that wait."""
        had_turn = self._pass_on()
        try:
            yield
        finally:
            if had_turn:
                self._take(1)

    def _take(self, rank: int) -> None:
        thread, begins = threading.get_ident(), threading.Event()
        with self._lock:
            if self._drawing is None:
                self._drawing = thread
                return
            self._waiting[rank].append((thread, begins))
        if begins.wait(self._patience_s):
            return
        with self._lock:
            if not begins.is_set():
                self._waiting[rank].remove((thread, begins))  # draws beside the one that takes so long

    def _pass_on(self) -> bool:
        """Returns whether this thread had the turn, and gives it to the next."""
        with self._lock:
            if self._drawing != threading.get_ident():
                return False
            queue = next((queue for queue in self._waiting if queue), None)
            self._drawing, begins = queue.popleft() if queue else (None, None)
            if begins:
                begins.set()
            return True


TURNS = Turns()
