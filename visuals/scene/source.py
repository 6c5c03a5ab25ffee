"""The CUDA source beside a scene: the line that runs, notes in its margin, the resources of its kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from kernels import sources
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.occupancy import occupancy
from kernels.i18n import decimal, tr, trn
from kernels.model.program import Launch
from visuals import units
from visuals.scene.parts import Source


def margin(counters: Counters, file: str) -> dict[int, str]:
    """Return, by line of `file`, the launch's sectors, its wavefronts and conflicts of shared memory, and its
    divergence."""
    notes = {}
    for line, c in counters.lines.items():
        parts = []
        for op in ("ld", "st"):
            if c[f"sectors_{op}"]:
                parts.append(tr("{op} {n} sect", op=op, n=units.whole(c[f"sectors_{op}"])))
            if c[f"wavefronts_{op}"]:
                parts.append(tr("{op} {n} waves", op=op, n=units.whole(c[f"wavefronts_{op}"])))
        if conflicts := c["bank_conflicts_ld"] + c["bank_conflicts_st"]:
            parts.append(trn("{n} conflict", "{n} conflicts", conflicts))
        if c["divergent_branches"]:
            share = decimal(f"{c['divergent_branches'] / c['branches']:.0%}")
            parts.append(tr("{share} diverge", share=share))
        if line.file == file and parts:
            notes[line.number] = ", ".join(parts)
    return notes


# A text or a pattern finds the first line that has it, (text or pattern, n) the n-th one, from 0.
Mark = str | re.Pattern | tuple[str | re.Pattern, int]


def source_of(file: str, marks: Sequence[Mark], kind: np.ndarray, **fields) -> Source:
    """Returns a CUDA source without its opening comment. At a step of kind n the line of marks[n] is lit. ValueError if
    no line has a mark: then the file has changed and the marks have not."""
    text, first, lit = _marked(sources.text(file), tuple(marks))
    if 0 in lit:
        raise ValueError(f"{file} has no line like {marks[lit.index(0)]!r}")
    return Source(file.rpartition("/")[2], text, np.array(lit)[kind], first + 1, **fields)


def source_at(file: str, text: str, lit: np.ndarray, **fields) -> Source:
    """Returns a CUDA source without its opening comment, with the line that each step lights."""
    shown, first, _ = _marked(text, ())
    return Source(file, shown, lit, first + 1, **fields)


@lru_cache(maxsize=256)
def _marked(text: str, marks: tuple[Mark, ...]) -> tuple[str, int, tuple[int, ...]]:
    """Returns a source without its opening comment, how many lines that has, and the line of each mark, 0 without one."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("//"))
    lit = []
    for mark in marks:
        mark, nth = mark if isinstance(mark, tuple) else (mark, 0)
        pattern = re.compile(re.escape(mark)) if isinstance(mark, str) else mark
        found = [i + 1 for i in range(first, len(lines)) if pattern.search(lines[i])]
        lit.append(found[nth] if nth < len(found) else 0)
    return "\n".join(lines[first:]), first, tuple(lit)


def resources(launch: Launch) -> str:
    """Returns registers and shared memory as ptxas reports them for sm_90, and the occupancy that they allow there; ""
    for a kernel that is not precompiled."""
    compiled = precompiled.resources(launch.source, launch.defines)
    if not compiled:
        return ""
    shared = compiled["shared_bytes"] + launch.shared
    limits = occupancy(compiled["registers"], shared, int(np.prod(launch.block)))
    return tr(
        "{registers} registers, {shared} shared memory, occupancy {share} (H200)",
        registers=compiled["registers"],
        shared=units.bytes_(shared),
        share=decimal(f"{limits.share:.0%}"),
    )
