"""The GPUs that recordings were made on, and which of them a reader sees.

Every comparison takes its rows from one GPU: times of two GPUs in one chart would compare GPUs, not kernels. A ladder
is shown from the GPU that covers most of it (`default`), or from the GPU that the reader chose, if it has rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from kernels.i18n import language, tr

FIRST = "nvidia-h200"  # the GPU of the first recordings: shown if another one covers as much
OWN = "own-"
PARAM = "card"  # of a URL


@dataclass(frozen=True)
class Gpu:
    """A device, and whose recording of it. `own`: made by this user, not shipped with the app. Another GPU of the same
    name, with another driver, is another GPU."""

    device: str
    own: bool = False

    @property
    def key(self) -> str:
        """Returns the name of the GPU in a URL and in a file's name: "nvidia-h200", "own-nvidia-h200"."""
        return OWN * self.own + slug(self.device)

    @property
    def name(self) -> str:
        """Returns the name of the GPU for readers."""
        device = self.device.removeprefix("NVIDIA ")
        return tr("{device}, own recording", device=device) if self.own else device


def slug(device: str) -> str:
    """Returns a device's name in the characters of a file's name: "NVIDIA H100 80GB HBM3" -> "nvidia-h100-80gb-hbm3"."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def default(coverage: Mapping[Gpu, int]) -> Gpu | None:
    """Returns the GPU that a ladder is shown from: the one that covers most, by the number of settings with a row.
    If two cover as much, FIRST goes before others, a shipped recording before an own one. None without GPUs."""

    def order(gpu: Gpu) -> tuple:
        return -coverage[gpu], gpu.key != FIRST, gpu.own, gpu.key

    return min(coverage, key=order, default=None)


# -- the reader's choice ---------------------------------------------------------------------------
def _nobody() -> str:
    return ""


_current: Callable[[], str] = _nobody
_chosen: ContextVar[str | None] = ContextVar("gpu", default=None)


def follow(current: Callable[[], str]) -> None:
    """Takes the key of the reader's GPU from `current()`, "" for no choice."""
    global _current
    _current = current


@contextmanager
def using(key: str) -> Iterator[None]:
    """Shows every ladder from one GPU, where it has rows, while it is open. "": from the default GPU of each."""
    token = _chosen.set(key)
    try:
        yield
    finally:
        _chosen.reset(token)


def chosen() -> str:
    """Returns the key of the GPU that the reader chose, "" for none."""
    key = _chosen.get()
    return _current() if key is None else key


P = ParamSpec("P")
R = TypeVar("R")


def cached(maxsize: int | None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator like kernels.i18n.cached for results that hold recorded figures as well as texts: the reader's
    GPU and language are part of the key."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @lru_cache(maxsize=maxsize)
        def of_gpu(_: tuple[str, str], *args: P.args, **kwargs: P.kwargs) -> R:
            return function(*args, **kwargs)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return of_gpu((chosen(), language()), *args, **kwargs)

        vars(call).update(cache_clear=of_gpu.cache_clear, cache_info=of_gpu.cache_info)
        return call

    return decorate
