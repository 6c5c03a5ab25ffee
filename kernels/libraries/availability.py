"""Rules of a rung that is a library's: what such a library supports only it says, when it is asked on the machine that
runs it. No rule is taken from a manual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernels import engines
from kernels.model.program import RuleError


def rules(library: str, find: Callable[[], object], rung: str, s: Any) -> Iterator[str]:
    """Why the library, which `find` finds or raises RuleError, cannot be asked here; where there is no GPU, what
    it said where that is recorded. Where it can be asked there are no rules: it says itself whether it supports
    the shape (UnsupportedError)."""
    gpu = engines.load("cuda").status()
    if not gpu.ready:
        from kernels.records import unsupported  # records stand above the ladders

        if told := unsupported.recorded(rung, s):
            yield f"{told['said']}, asked on an {told['device']}, {told['date']}"
        else:
            yield f"{library} was not asked here: {gpu.text}"
        return
    try:
        find()
    except RuleError as e:
        yield f"{library} was not asked here: {e}"
