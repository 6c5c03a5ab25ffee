"""The Scene contract: what the stage shows, as data. Documented here and nowhere else.

A scene is tensors (grids of cells), relations between them, and steps. The picture at step t is
a pure function of (scene, t), so pause, scrub, deep link, export and test come free.

* A **Tensor** is `planes` grids of rows x cols, drawn side by side; cell indices are flat in
  (plane, row, col) order. Its `role` is its colour; `workspace=True` puts the workspace ground
  under it. `values=None` means: every cell is a copy along the Gather that fills the tensor, and
  keeps the hue of the tensor it was copied from.
* A **Gather** says target[i] = source[index[i]], or zero (padding) where index[i] is -1.
* A **MatMul** says out[m, j] = sum_i left[m, i] * right[i, j] + rest[m, j], where left is read
  as (rows, cols), right as (rows, cols) and out as (planes, rows*cols). `rest` is what the terms
  outside the part shown add (None where nothing is left out).
* `born` gives for each written tensor the step at which a cell is written; it repeats over the
  flat cells: cell i is written at step born[i % len(born)]. Before that the cell is a ghost.
* **Captions** are templates with {0}, {1} ... filled from integer arguments, one row a step;
  words that name a role are written [text](role). `caption(t)` is the text form of step t.
* **Source** is the kernel's CUDA text, the line lit at each step and notes in the margin; **Lanes** the
  warp a step follows and its active lanes.

`payload()` is what crosses to the browser: a JSON-able dict and one block of bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

VERSION = 1
ROLES = ("input", "filter", "output", "workspace")


class SceneError(ValueError):
    """A scene that breaks the contract."""


@dataclass(frozen=True)
class Tensor:
    name: str  # key in relations and in `rows`, e.g. "D"
    symbol: str  # as formulas write it, e.g. "x"
    title: str  # above the grid, e.g. "data matrix (workspace)"
    role: str
    planes: int
    rows: int
    cols: int
    values: np.ndarray | None = None  # float32, planes*rows*cols
    origin: tuple[int, int, int] = (0, 0, 0)  # index of cell 0 in the whole tensor: the part shown
    note: str = ""  # beside the title: its size, or which part of a whole
    workspace: bool = False
    plane_name: str = ""  # what a plane is: "channel", "filter"; "" where there is but one sort
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)  # padding drawn round each plane: top, left, bottom, right
    partial: bool = False  # a part of a larger whole is shown
    col_index: np.ndarray | None = None  # the whole tensor's column of each one shown, where not consecutive

    @property
    def size(self) -> int:
        return self.planes * self.rows * self.cols


@dataclass(frozen=True)
class Gather:
    source: str
    target: str
    index: np.ndarray  # integer, one a target cell; -1: padding zero


@dataclass(frozen=True)
class MatMul:
    left: str
    right: str
    out: str
    rest: np.ndarray | None = None  # float32, one an out cell


@dataclass(frozen=True)
class Source:
    file: str  # shown as the pane's title
    text: str
    lines: np.ndarray  # integer, the file's line lit at each step; one number where it never changes
    first: int = 1  # the file's line that `text` begins with
    notes: dict[int, str] = field(default_factory=dict)  # by line: what stands in its margin
    detail: str = ""  # beside the file's name: registers, shared memory


@dataclass(frozen=True)
class Lanes:
    """The warp a step is about: its number and which of its 32 lanes take part (bit i: lane i)."""

    warp: np.ndarray  # integer, one a step; -1: no one warp
    mask: np.ndarray  # uint32, one a step


@dataclass(frozen=True)
class Captions:
    templates: tuple[str, ...]
    kind: np.ndarray  # integer, per step: which template
    args: np.ndarray  # integer (steps, n)


@dataclass(frozen=True)
class Scene:
    key: str  # equal keys mean equal scenes; a player keeps its step while the key stays
    title: str
    tensors: tuple[Tensor, ...]
    rows: tuple[tuple[str, ...], ...]  # layout: names of tensors, row by row
    steps: int
    step_name: str  # what one step is: "column"
    order_name: str  # in whose order the steps run: "explaining order"
    order_note: str  # how that order differs from the GPU's
    born: dict[str, np.ndarray]
    gathers: tuple[Gather, ...]
    matmuls: tuple[MatMul, ...]
    captions: Captions
    source: Source | None = None
    lanes: Lanes | None = None
    version: int = field(default=VERSION, init=False)

    def __post_init__(self):
        validate(self)

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def caption(self, t: int) -> str:
        """The sentence of step t with its role marks taken out: the scene's text form."""
        return re.sub(r"\[([^\]]*)\]\(\w+\)", r"\1", self.marked_caption(t))

    def marked_caption(self, t: int) -> str:
        template = self.captions.templates[int(self.captions.kind[t])]
        return template.format(*(int(a) for a in self.captions.args[t]))

    def cells(self, name: str, t: int | None = None) -> np.ndarray:
        """Values of a tensor's cells after step t (the last when left out), NaN where unwritten."""
        tensor = self.tensor(name)
        if tensor.values is not None:
            values = tensor.values.astype(np.float32, copy=True)
        else:
            gather = next(g for g in self.gathers if g.target == name)
            values = np.append(self.cells(gather.source), np.float32(0))[gather.index]
        if name in self.born and t is not None:
            born = np.resize(self.born[name], tensor.size)
            values[born > t] = np.nan
        return values

    def payload(self) -> tuple[dict, bytes]:
        """(meta, block): meta holds every field, arrays in it as {dtype, offset, length} into block.

        dtypes are f4, u1, u2, i2, i4 (little endian), the narrowest that holds the values; offsets
        are multiples of 4. A gather's index that is a sum, index[i, j] = row[i] + col[j] wherever it is
        not -1, travels as {row, col, padding}: two short arrays and the flat places of the -1.
        """
        block = bytearray()

        def put(array):
            if array is None:
                return None
            flat = _narrow(np.asarray(array).ravel())
            block.extend(bytes(-len(block) % 4))
            entry = {"dtype": flat.dtype.str[1:], "offset": len(block), "length": int(flat.size)}
            block.extend(flat.tobytes())
            return entry

        def put_index(g):
            terms = _as_sum(np.asarray(g.index).reshape(-1, self.tensor(g.target).cols))
            return put(g.index) if terms is None else {name: put(array) for name, array in terms.items()}

        meta = {
            "version": self.version,
            "key": self.key,
            "title": self.title,
            "steps": self.steps,
            "stepName": self.step_name,
            "orderName": self.order_name,
            "orderNote": self.order_note,
            "rows": [list(row) for row in self.rows],
            "tensors": [
                {
                    "name": t.name,
                    "symbol": t.symbol,
                    "title": t.title,
                    "role": t.role,
                    "planes": t.planes,
                    "rows": t.rows,
                    "cols": t.cols,
                    "origin": list(t.origin),
                    "note": t.note,
                    "workspace": t.workspace,
                    "planeName": t.plane_name,
                    "pad": list(t.pad),
                    "partial": t.partial,
                    "colIndex": put(t.col_index),
                    "values": put(t.values),
                }
                for t in self.tensors
            ],
            "born": {name: put(array) for name, array in self.born.items()},
            "gathers": [
                {"source": g.source, "target": g.target, "index": put_index(g)} for g in self.gathers
            ],
            "matmuls": [
                {"left": m.left, "right": m.right, "out": m.out, "rest": put(m.rest)} for m in self.matmuls
            ],
            "captions": {
                "templates": list(self.captions.templates),
                "kind": put(self.captions.kind),
                "args": put(self.captions.args),
                "width": int(self.captions.args.shape[1]),
            },
            "source": None
            if self.source is None
            else {
                "file": self.source.file,
                "text": self.source.text,
                "lines": put(self.source.lines),
                "first": self.source.first,
                "detail": self.source.detail,
                "notes": {str(line): text for line, text in self.source.notes.items()},
            },
            "lanes": None
            if self.lanes is None
            else {
                "warp": put(self.lanes.warp),
                "mask": put(self.lanes.mask.astype(np.uint32).view(np.int32)),
            },
        }
        return meta, bytes(block)


def _as_sum(index: np.ndarray) -> dict[str, np.ndarray] | None:
    """Arrays row, col with index[i, j] = row[i] + col[j] where it is not -1, and the flat places of the
    -1; None where the index is no such sum (or no line of it is free of -1 to read the terms from)."""
    inside = index >= 0
    full_row, full_col = inside.all(axis=1), inside.all(axis=0)
    if not (full_row.any() and full_col.any()):
        return None
    i, j = int(full_row.argmax()), int(full_col.argmax())
    row, col = index[:, j], index[i] - index[i, j]
    if not (np.where(inside, row[:, None] + col, -1) == index).all():
        return None
    return {"row": row, "col": col, "padding": np.flatnonzero(~inside)}


def _narrow(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return array.astype("<f4")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    for dtype in ("<u1", "<u2", "<i2", "<i4"):
        info = np.iinfo(dtype)
        if info.min <= low and high <= info.max:
            return array.astype(dtype)
    raise SceneError(f"integers {low} .. {high} do not fit 32 bits")


def validate(scene: Scene) -> None:
    """Raise SceneError naming the part of the contract that is broken."""

    def need(condition, message):
        if not condition:
            raise SceneError(f"scene {scene.key!r}: {message}")

    tensors = {t.name: t for t in scene.tensors}
    need(len(tensors) == len(scene.tensors), "two tensors share a name")
    need(scene.steps >= 1, "needs at least one step")
    targets = {g.target for g in scene.gathers}
    for t in scene.tensors:
        need(t.role in ROLES, f"{t.name}: role {t.role!r} is none of {', '.join(ROLES)}")
        need(min(t.planes, t.rows, t.cols) >= 1, f"{t.name} is empty")
        need(t.col_index is None or len(t.col_index) == t.cols, f"{t.name}: a column has no index")
        if t.values is None:
            need(t.name in targets, f"{t.name} has neither values nor a gather that fills it")
        else:
            need(np.size(t.values) == t.size, f"{t.name}: {np.size(t.values)} values for {t.size} cells")
            need(np.isfinite(t.values).all(), f"{t.name} has values that are not finite")
    shown = [name for row in scene.rows for name in row]
    need(sorted(shown) == sorted(tensors), "the layout must name every tensor once")
    for name, born in scene.born.items():
        need(name in tensors, f"born names {name!r}, which is no tensor")
        need(tensors[name].size % len(born) == 0, f"born of {name} does not divide its cells")
        need(born.min() >= 0 and born.max() < scene.steps, f"born of {name} leaves the steps")
    for g in scene.gathers:
        need(g.source in tensors and g.target in tensors, "a gather names no tensor")
        need(g.index.size == tensors[g.target].size, f"the gather into {g.target} misses cells")
        need(
            g.index.min() >= -1 and g.index.max() < tensors[g.source].size,
            f"the gather into {g.target} leaves {g.source}",
        )
    for m in scene.matmuls:
        need({m.left, m.right, m.out} <= tensors.keys(), "a matmul names no tensor")
        left, right, out = tensors[m.left], tensors[m.right], tensors[m.out]
        agree = (left.cols, left.rows, right.cols) == (right.rows, out.planes, out.rows * out.cols)
        need(agree, f"{m.out} = {m.left} x {m.right}: the extents do not agree")
        need(m.rest is None or np.size(m.rest) == out.size, f"the rest of {m.out} misses cells")
    need(
        len(scene.captions.kind) == scene.steps and len(scene.captions.args) == scene.steps,
        "captions and steps differ in number",
    )
    if scene.lanes is not None:
        need(
            len(scene.lanes.warp) == len(scene.lanes.mask) == scene.steps, "lanes and steps differ in number"
        )
    if scene.source is not None:
        need(np.size(scene.source.lines) in (1, scene.steps), "source lines and steps differ in number")
