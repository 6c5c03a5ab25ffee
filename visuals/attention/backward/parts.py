"""Shared by the scenes of attention's backward pass: tensors of global memory, and the files of a program's launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import decimal, tr, trn
from kernels.model.program import Launch
from visuals.attention.parts import global_title
from visuals.scene.parts import Group, Source, Tensor
from visuals.scene.recorder import Recorder, matrix
from visuals.scene.source import Mark, resources, source_of

ROLES = {
    "Q": "input",
    "K": "filter",
    "V": "filter",
    "O": "input",
    "dO": "input",
    "L": "input",
    "D": "workspace",
    "P": "workspace",
    "dS": "workspace",
    "dQ": "output",
    "dK": "output",
    "dV": "output",
}
OF_ROWS = ("L", "D")  # a number for each query
IN_GLOBAL = (("Q", "dO", "O", "L", "D"), ("K", "V", "dQ", "dK", "dV"))  # the rows of global memory on the stage


def in_global(
    name: str, s: AttentionBackwardShape, rows: range, cols: int, head: Mapping[str, np.ndarray] | None = None
) -> Tensor:
    """Returns the part of a tensor of global memory that is shown; its values if `head` has them before the first step."""
    wide = 1 if name in OF_ROWS else cols
    whole = s.N, 1 if name in OF_ROWS else s.d
    values = None
    if head is not None and name in head:
        values = head[name].reshape(s.N, -1)[rows.start : rows.stop, :wide]
    made = matrix(name, ROLES[name], (len(rows), wide), (rows.start, 0), whole, values)
    if len(rows) == s.N:  # the title of global memory names the rows
        return replace(made, note="")
    note = tr("rows {first}–{last} of {all}", first=rows.start, last=rows.stop - 1, all=decimal(f"{s.N:,}"))
    return replace(made, note=note)


def global_group(s: AttentionBackwardShape, rows: range, cols: int) -> Group:
    """Returns the group of global memory. Its title names the rows if all are shown, and the columns if some are not."""
    title = global_title(s)
    if len(rows) == s.N:
        title = trn("{memory}, N = {n} row", "{memory}, N = {n} rows", s.N, memory=title)
    if cols < s.d:
        title = tr("{memory}, columns 0–{last} of {all}", memory=title, last=cols - 1, all=s.d)
    return Group(IN_GLOBAL, "global", title)


def tile(name: str, symbol: str, role: str, size: tuple[int, int], note: str = "") -> Tensor:
    """Returns a tensor of shared memory or of registers, empty before the first step."""
    return Tensor(name, symbol, symbol, role, 1, *size, note=note)


def sources_of(
    r: Recorder, steps: Sequence[Launch], lines: Mapping[str, tuple[int, Mark]]
) -> tuple[Source, tuple[Source, ...]]:
    """Returns the file of the first launch and those of the later ones, each from its first step on. lines: for each kind of
    step the number of its launch and the line that it lights, in the order of the recorder's kinds."""
    launches = np.array([launch for launch, _ in lines.values()])[r.kinds]
    starts = np.flatnonzero(np.diff(launches, prepend=-1))
    found = []
    for start, stop in zip(starts, [*starts[1:], len(launches)], strict=True):
        step = steps[launches[start]]
        kinds = np.array(r.kinds[start:stop])
        marks = {n: text for n, (launch, text) in enumerate(lines.values()) if launch == launches[start] and text}
        kind = np.searchsorted(list(marks), kinds)
        source = source_of(step.source, list(marks.values()), kind, detail=resources(step))
        found.append(replace(source, since=int(start)))
    return found[0], tuple(found[1:])
