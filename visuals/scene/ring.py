"""What rings of stages have in common, for every kernel whose copies, products and barriers a trace names: the kinds of
slots, who executes an event, and rows of lanes with a column for each slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.events import WARPS, Events
from kernels.i18n import mark
from visuals.scene.parts import ROLES, Annotation, Captions, Tensor, Write

ISSUE, ARRIVED, MULTIPLY, FREE, STORE, FOLDED = "issue", "arrived", "multiply", "free", "store", "folded"
FILLING, FULL, READING = "filling", "full", "reading"  # the states of a stage that is not empty
ON_FULL, ON_EMPTY = "full", "empty"  # the barriers of a stage
HEAD = 2  # tiles that are kept at the start of a long loop
ORDER = mark("emulated order")
NOTE = mark(
    "The columns show order, not duration. In the emulator, copies arrive as late as possible. On the GPU, copies and "
    "products run at the same time."
)
CUT_NOTE = mark("The emulator ran {run} of the {all} tiles. The tiles left out repeat the others.")
# The roles of cells: what a stage holds, and a warpgroup that waits.
STATES = {FILLING: "input", FULL: "filter", READING: "output"}
WAITS = "workspace"

Actor = tuple[int, int]  # block and warpgroup


def actors(events: Events, n: int, groups: int) -> tuple[Actor, ...]:
    """Returns which of the first `groups` warpgroups of a block execute event n."""
    warps, block = int(events.warps[n]), int(events.block[n])
    return tuple((block, group) for group in range(groups) if warps >> WARPS * group & (1 << WARPS) - 1)


def line_number(events: Events, n: int) -> int:
    """Returns the source line of event n, 0 if it has none."""
    line = events.lines[events.line[n]]
    return line.number if line else 0


# -- rows of lanes ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cell:
    """A number in a lane of a row at a step, with its role and its text."""

    lane: int
    step: int
    number: int
    role: str
    text: str


@dataclass(frozen=True)
class Row:
    """A row of `lanes` lanes over some steps. Its cells are written at their steps."""

    name: str
    lanes: int
    steps: int
    cells: Sequence[Cell]

    def tensor(self, title: str, role: str, note: str) -> Tensor:
        """Returns the row as a tensor, whose cells have roles of their own."""
        roles = np.zeros((self.lanes, self.steps), int)
        for cell in self.cells:
            roles[cell.lane, cell.step] = ROLES.index(cell.role)
        return Tensor(
            self.name, title, title, role, 1, self.lanes, self.steps, note=note, timed=True, roles=roles.ravel()
        )

    def write(self) -> Write:
        return Write(
            self.name,
            np.array([cell.step for cell in self.cells], int),
            np.array([cell.number for cell in self.cells], np.float32),
            cells=np.array([cell.lane * self.steps + cell.step for cell in self.cells], int),
        )

    def annotation(self, idle: Sequence[str]) -> Annotation:
        """Returns the texts of all cells. `idle`: by step, the text of a cell that is not written."""
        texts = [*idle] * self.lanes
        for cell in self.cells:
            texts[cell.lane * self.steps + cell.step] = cell.text
        return Annotation(self.name, Captions.of(texts))


def parity_write(name: str, ended: np.ndarray) -> Write:
    """Returns the write of parities into the cells of barriers. `ended`: int [steps, barriers], phases that have ended."""
    parity = ended % 2
    step, cell = np.nonzero(np.diff(parity, axis=0, prepend=0))
    return Write(name, step, parity[step, cell].astype(np.float32), cells=cell)
