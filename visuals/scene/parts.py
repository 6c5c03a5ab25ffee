"""The parts of a scene as data: tensors, groups, writes, reads, sums, sources, captions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

VERSION = 3


ROLES = ("input", "filter", "output", "workspace")


# {0} in a template.
FIELD = re.compile(r"\{\{|\}\}|\{([0-9]+)\}")


# [text](role) in a template.
MARK = re.compile(r"\[([^\]]*)\]\((\w+)\)")


MEMORY_SPACES = ("global", "workspace", "shared", "registers")


KINDS = ("", "measured", "counted", "recorded", "predicted")


MAX_STEPS, MAX_CELLS = 100_000, 1_000_000


HUGE = 1e15  # from here on, captions print a power of ten


class SceneError(ValueError):
    """A scene that breaks the contract."""


@dataclass(frozen=True)
class Tensor:
    name: str  # key in relations and in groups, e.g. "D"
    symbol: str  # as formulas write it, e.g. "x"
    title: str  # above the grid, e.g. "data matrix (workspace)"
    role: str
    planes: int
    rows: int
    cols: int
    values: np.ndarray | None = None  # float32, planes*rows*cols, before the first step
    origin: tuple[int, int, int] = (0, 0, 0)  # index of cell 0 in the whole tensor, where a part is shown
    note: str = ""  # beside the title: its size, or which part of a whole it is
    plane_name: str = ""  # what a plane is: "channel", "filter"; "" if there is only one sort
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)  # padding drawn round each plane: top, left, bottom, right
    partial: bool = False  # whether only a part of a larger tensor is shown
    col_index: np.ndarray | None = None  # each column's index in the whole tensor; None if consecutive
    timed: bool = False  # whether columns are steps: rows stay in one piece, all numbers have one shade
    roles: np.ndarray | None = (
        None  # integer, one per cell: its own role, by its number in ROLES; None: all have `role`
    )

    @property
    def size(self) -> int:
        return self.planes * self.rows * self.cols


@dataclass(frozen=True)
class Group:
    """A region of the stage: rows of tensors, by name, in one of MEMORY_SPACES.

    The rows of a `table` are aligned: tensors of a column begin at the same left edge, those of a row at the same top, and
    all cells have one size. "" leaves a place empty. `product` makes such a table."""

    rows: tuple[tuple[str, ...], ...]
    memory_space: str = "global"
    title: str = ""  # above the region: "shared memory of block (0, 0)"
    aligned: bool = False  # row i of all tensors of a row is on one line: equally many rows, cells of one size
    table: bool = False
    column: bool = True  # whether it may begin a new column of the stage


def product(left: str, right: str, *out: str) -> tuple[tuple[str, ...], ...]:
    """Returns the rows of a table that shows a matrix product: the right factor above the product, the left one beside it.

    `out` is the product, then what is beside it; "" leaves its place empty."""
    return ("", right, *[""] * (len(out) - 1)), (left, *out)


@dataclass(frozen=True)
class Flow:
    """An arrow from group `source` to group `target`, by their positions in a scene's groups. Its label at step t is
    texts[text[t]]; "" for no arrow."""

    source: int
    target: int
    texts: tuple[str, ...]
    text: np.ndarray  # integer, one per step
    active: np.ndarray  # integer, one per step: 1 where values move at this step


# A number of a caption. By NumPy's types many a number that is taken out of an array is an array.
Number = float | np.number | np.ndarray
Cells = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Write:
    """A write of cell cells[k] of `target` at step steps[k % len(steps)]: with values[k], or with a copy of
    cell index[k] of `source` (-1: a zero of the padding). Without `cells`, all cells are written in their order."""

    target: str
    steps: np.ndarray  # integer
    values: np.ndarray | None = None  # float32, one per write
    source: str = ""
    index: np.ndarray | None = None  # integer, one per write
    cells: np.ndarray | None = None  # integer
    reshapes: bool = False  # the cells are those of `source` under another index: no bytes move


@dataclass(frozen=True)
class View:
    tensor: str
    source: str
    index: np.ndarray  # integer, one per cell: the cell of the source; -1: a zero of the padding


@dataclass(frozen=True)
class Read:
    """Reads by step: step t reads cells[start[t] : start[t + 1]] of `source`."""

    source: str
    start: np.ndarray  # integer, steps + 1
    cells: np.ndarray  # integer


@dataclass(frozen=True)
class MatMul:
    left: str
    right: str
    out: str
    rest: np.ndarray | None = None  # float32, one per cell of `out`
    upto: np.ndarray | None = None  # integer, one per step


@dataclass(frozen=True)
class Sum:
    """Cell i of `out` as a sum: its terms k are start[i] .. start[i + 1] - 1, each factors[k] * right[cells[k]]."""

    out: str
    right: str
    start: np.ndarray  # integer, out's cells + 1
    cells: np.ndarray  # integer
    factors: np.ndarray  # float32; with `left`: integer, cells of it
    left: str = ""
    rest: str = ""  # where the terms that are not shown come from: "channels"


@dataclass(frozen=True)
class Reading:
    label: str  # "sectors read", "m, running maximum"
    values: np.ndarray  # one per step
    kind: str = ""  # the badge of a counter; "" for a value of the algorithm itself
    role: str = ""  # the colour of such a value


@dataclass(frozen=True)
class Source:
    file: str  # shown as the side panel's title
    text: str
    lines: np.ndarray  # integer, the line lit at each step from `since` on, 0: none; one number if it never changes
    first: int = 1  # the line of the file at which `text` begins
    notes: dict[int, str] = field(default_factory=dict)  # by line: the text in its margin
    detail: str = ""  # beside the file's name: registers, shared memory
    since: int = 0  # the step from which on the file is shown


@dataclass(frozen=True)
class Lanes:
    """The warp of each step: its number and its active lanes (bit i: lane i)."""

    warp: np.ndarray  # integer, one per step; -1: no single warp
    mask: np.ndarray  # uint32, one per step


@dataclass(frozen=True)
class Captions:
    templates: tuple[str, ...]
    kind: np.ndarray  # integer, per step: which template
    args: np.ndarray  # integer or float (steps, n)

    @classmethod
    def of(cls, texts: Sequence[str]) -> Captions:
        """Returns captions that are these texts, without numbers to fill in."""
        different = list(dict.fromkeys(texts))
        kind = np.array([different.index(text) for text in texts])
        return cls(tuple(different), kind, np.zeros((len(texts), 1), int))


@dataclass(frozen=True)
class Annotation:
    tensor: str
    captions: Captions  # one row per cell; the captions of a scene have one row per step
    links: Mapping[str, np.ndarray] = field(default_factory=dict)  # integer (cells, n) by tensor; -1: none
