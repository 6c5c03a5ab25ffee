"""The parts of PyTorch that every call of it uses, for tests without PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace

no_context = contextlib.nullcontext


def fake_cuda(
    stream: Callable[..., AbstractContextManager] = lambda stream: no_context(), peak: int = 0, now: int = 0
) -> SimpleNamespace:
    """Returns a torch.cuda whose allocator reports these bytes, and whose streams are entered by `stream(name)`."""
    return SimpleNamespace(
        stream=stream,
        ExternalStream=lambda pointer: f"stream {pointer}",
        reset_peak_memory_stats=lambda: None,
        max_memory_allocated=lambda: peak,
        memory_allocated=lambda: now,
    )
