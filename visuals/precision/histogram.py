"""A histogram of real gradients over powers of two, and what a format makes of each column at each loss scale.

Every tensor of the stage is one range of powers of two: those that become 0, those that are subnormal, those that are stored
with all digits, those that overflow. A step doubles the loss scale, which moves all gradients by one column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.i18n import mark, tr
from kernels.precision.formats import FORMATS, Format, Losses, losses, rounded
from visuals import units
from visuals.scene.parts import Captions, Group, Reading, Tensor, Write
from visuals.scene.scene import Scene

LOW, HIGH = -46, 17  # powers of two on the stage
ROWS = 36
SCALES = 25  # loss scales: 2^0 to 2^24
NAMES = tuple(FORMATS)
ZERO, SUBNORMAL, NORMAL, OVERFLOW = "zero", "subnormal", "normal", "overflow"
FATES = {  # title and colour
    ZERO: (mark("becomes 0"), "workspace"),
    SUBNORMAL: (mark("loses digits"), "filter"),
    NORMAL: (mark("all digits"), "input"),
    OVERFLOW: (mark("overflows"), "output"),
}
ORDER_NOTE = mark(
    "Each step doubles the loss scale. The gradients are those of one training step in FP32, times the scale."
)
CAPTION = mark(
    "Loss scale 2^{0}. [{1} %](workspace) of the gradients that are not 0 become 0. [{2} %](filter) lose digits, [{3} %](output) "
    "overflow."
)


@dataclass(frozen=True)
class Range:
    """Powers of two, first to last, whose numbers have the same fate."""

    fate: str
    first: int
    last: int

    @property
    def columns(self) -> int:
        return self.last - self.first + 1


def fate(power: int, f: Format) -> str:
    """Returns the fate of the numbers in the middle of a column, 1.5 · 2^power."""
    y = float(rounded(1.5 * 2.0**power, f))
    if not np.isfinite(y):
        return OVERFLOW
    return ZERO if y == 0 else SUBNORMAL if power < f.min_exponent else NORMAL


def ranges(f: Format) -> list[Range]:
    """Returns the ranges of the stage's columns, from the smallest numbers on."""
    fates = [fate(power, f) for power in range(LOW, HIGH + 1)]
    found = []
    for name in FATES:
        at = [LOW + n for n, one in enumerate(fates) if one == name]
        if at:
            found.append(Range(name, at[0], at[-1]))
    return found


def shares(x: np.ndarray, scale_power: int) -> np.ndarray:
    """Returns the share of the values, times 2^scale_power, in each column, of those that are not 0. The outermost columns
    take what is beyond them."""
    x = np.abs(np.asarray(x, np.float64)).ravel()
    x = x[x > 0]
    if not x.size:
        return np.zeros(HIGH - LOW + 1)
    column = np.clip(np.frexp(x)[1] - 1 + scale_power - LOW, 0, HIGH - LOW)
    return np.bincount(column, minlength=HIGH - LOW + 1) / x.size


def all_losses(x: np.ndarray, f: Format) -> list[Losses]:
    """Returns the exact shares at each loss scale of the stage."""
    return [losses(x, f, 2.0**n) for n in range(SCALES)]


def histogram_scene(name: str, at: int, x: np.ndarray, format_name: str) -> Scene:
    """Returns the scene of gradients x, those of tensor `name` at a training step, in a format of NAMES."""
    f = FORMATS[format_name]
    found, lost = ranges(f), all_losses(x, f)
    columns = np.array([shares(x, n) for n in range(SCALES)])
    top = columns.max()
    states = {one.fate: _states(one, columns, top) for one in found}
    writes = [w for name, states_of in states.items() if (w := _writes(name, states_of))]
    percent = 100 * np.array([[one.underflow, one.subnormal, one.overflow] for one in lost])
    zeros = float(np.mean(np.asarray(x) == 0))
    return Scene(
        key=f"histogram {name} {at} {format_name}",
        title=tr("gradients of {tensor} in {format}", tensor=name.removeprefix("d "), format=format_name),
        tensors=tuple(_tensor(one, states[one.fate][0]) for one in found),
        groups=(
            Group(
                (tuple(one.fate for one in found),),
                "global",
                tr(
                    "{n} gradients of {tensor}, training step {step}; {zeros} are exactly 0",
                    n=units.whole(np.size(x)),
                    tensor=name.removeprefix("d "),
                    step=at,
                    zeros=units.share(zeros),
                ),
                aligned=True,
            ),
        ),
        steps=SCALES,
        step_name=tr("doubling"),
        order_name=tr("loss scale"),
        order_note=tr(ORDER_NOTE),
        writes=tuple(writes),
        captions=Captions((tr(CAPTION),), np.zeros(SCALES, int), np.column_stack([np.arange(SCALES), _short(percent)])),
        readings=(
            Reading(tr("become 0, %"), _short(percent[:, 0]), "recorded"),
            Reading(tr("lose digits, %"), _short(percent[:, 1]), "recorded"),
            Reading(tr("overflow, %"), _short(percent[:, 2]), "recorded"),
        ),
    )


def _short(percent: np.ndarray) -> np.ndarray:
    return np.round(percent, 1)


def _tensor(one: Range, first: np.ndarray) -> Tensor:
    title, role = FATES[one.fate]
    note = tr("2^{first} to 2^{last}", first=one.first, last=one.last) if one.columns > 1 else f"2^{one.first}"
    return Tensor(one.fate, one.fate, tr(title), role, 1, ROWS, one.columns, first, (0, 0, one.first), note, timed=True)


def heights(columns: np.ndarray, top: float) -> np.ndarray:
    """Returns how many cells of each column are filled: none for a share of 0, at least one for any other."""
    return np.ceil(ROWS * columns / top - 1e-9).astype(int) if top else np.zeros(columns.shape, int)


def _states(one: Range, columns: np.ndarray, top: float) -> np.ndarray:
    """Returns the cells of one range at each step, float32 [steps, cells]. A filled cell holds its column's share in %."""
    part = columns[:, one.first - LOW : one.last - LOW + 1]
    filled = np.arange(ROWS, 0, -1)[:, None] <= heights(part, top)[:, None, :]  # [steps, rows, columns]
    states = np.where(filled, np.round(100 * part[:, None, :], 2), 0)
    return states.reshape(len(columns), -1).astype(np.float32)


def _writes(name: str, states: np.ndarray) -> Write | None:
    """Returns the writes of one range: the cells whose number changes, at each step after the first; None if none does."""
    events = list(_changes(states))
    if not events:
        return None
    steps, cells, values = (np.concatenate(parts) for parts in zip(*events, strict=True))
    return Write(name, steps, values, cells=cells)


def _changes(states: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (steps, cells, values) of what changes at each step after the first."""
    for step in range(1, len(states)):
        cells = np.flatnonzero(states[step] != states[step - 1])
        if cells.size:
            yield np.full(cells.size, step), cells, states[step, cells]
