"""The Scene contract: what the stage shows, as data. Documented here and nowhere else.

A scene is tensors (grids of cells), what is written into them at which step, and what is said of each
step. The picture at step t is a pure function of (scene, t), so pause, scrub, deep link, export and test
come free.

* A **Tensor** is `planes` grids of rows x cols, drawn side by side; cell indices are flat in
  (plane, row, col) order. Its `role` is its colour. `values` is what it holds before the first step; a cell
  that nothing has been written to is a ghost. A tensor that is never written and holds nothing is one that
  an algorithm avoids: its cells are air.
* **Group**s are regions of the stage, each in one place: global memory, workspace, shared memory, registers.
* A **Write** says which cells get new values at which steps: numbers, or copies of another tensor's cells,
  which then keep the hue of where they came from. A cell may be written again: the last write counts. A copy
  made at step t sees what was written up to and including t; it may not read what nothing has written yet, and
  copies may not go round in a circle.
* A **View** says what the cells of a tensor that is never written would hold: those of another tensor. A copy from a
  view is a copy from there.
* A **Read** says which cells a step reads without copying them.
* A **MatMul** says out[m, j] = sum_i left[m, i] * right[i, j] + rest[m, j], where left and right are read as
  (rows, cols) and out, in its flat order, as (left's rows, right's cols). `rest` is what the terms outside the part
  shown add (None where nothing is left out); `upto[t]` how many terms are in the sum after step t (None: all
  of them, as soon as it is written).
* A **Told** says of each cell of a tensor what it is made of, where no copy and no product does: a sentence filled from
  its own numbers, and the cells of other tensors that light with it.
* A **Sum** says out[i] = the sum of factor * right over the terms start[i] .. start[i + 1] - 1: the factors are
  numbers, or cells of `left`. All of them count as they stood when out[i] was written.
* **Readings** are numbers that tick with the steps: counters with their badge, running values of the
  algorithm (a maximum, a sum) with their role.
* **Captions** are templates with {0}, {1} ... filled from numbers, one row a step; words that name a role are
  written [text](role). `caption(t)` is the text form of step t.
* **Source** is the kernel's CUDA text, the line lit at each step and notes in the margin; **Lanes** the
  warp a step follows and its active lanes.

visuals/payload.py turns a scene into what crosses to the browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

VERSION = 2
ROLES = ("input", "filter", "output", "workspace")
_FIELD = re.compile(r"\{\{|\}\}|\{([0-9]+)\}")
_MARK = re.compile(r"\[([^\]]*)\]\((\w+)\)")
PLACES = ("global", "workspace", "shared", "registers")
KINDS = ("", "measured", "counted", "recorded", "predicted")
MOST_STEPS, MOST_CELLS = 100_000, 1_000_000
HUGE = 1e15  # beyond what digits can tell


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
    origin: tuple[int, int, int] = (0, 0, 0)  # index of cell 0 in the whole tensor: the part shown
    note: str = ""  # beside the title: its size, or which part of a whole
    plane_name: str = ""  # what a plane is: "channel", "filter"; "" where there is but one sort
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)  # padding drawn round each plane: top, left, bottom, right
    partial: bool = False  # a part of a larger whole is shown
    col_index: np.ndarray | None = None  # the whole tensor's column of each one shown, where not consecutive

    @property
    def size(self) -> int:
        return self.planes * self.rows * self.cols


@dataclass(frozen=True)
class Group:
    """A region of the stage: rows of tensors, by name, that live in one of PLACES."""

    rows: tuple[tuple[str, ...], ...]
    place: str = "global"
    title: str = ""  # above the region: "shared memory of block (0, 0)"


@dataclass(frozen=True)
class Write:
    """Cell cells[k] of `target` is written at step steps[k % len(steps)]: with values[k], or with a copy of
    cell index[k] of `source` (-1: a zero of the padding). Without `cells`, all cells in their order."""

    target: str
    steps: np.ndarray  # integer
    values: np.ndarray | None = None  # float32, one a write
    source: str = ""
    index: np.ndarray | None = None  # integer, one a write
    cells: np.ndarray | None = None  # integer


@dataclass(frozen=True)
class View:
    tensor: str
    source: str
    index: np.ndarray  # integer, one a cell: of the source; -1: a zero of the padding


@dataclass(frozen=True)
class Read:
    """Step t reads cells[start[t] : start[t + 1]] of `source`."""

    source: str
    start: np.ndarray  # integer, steps + 1
    cells: np.ndarray  # integer


@dataclass(frozen=True)
class MatMul:
    left: str
    right: str
    out: str
    rest: np.ndarray | None = None  # float32, one an out cell
    upto: np.ndarray | None = None  # integer, one a step


@dataclass(frozen=True)
class Sum:
    """Of cell i of `out`: its terms k are start[i] .. start[i + 1] - 1, each factors[k] * right[cells[k]]."""

    out: str
    right: str
    start: np.ndarray  # integer, out's cells + 1
    cells: np.ndarray  # integer
    factors: np.ndarray  # float32; integer, cells of `left`, where there is one
    left: str = ""
    rest: str = ""  # what terms that are not shown come from: "channels"


@dataclass(frozen=True)
class Reading:
    label: str  # "sectors read", "m, running maximum"
    values: np.ndarray  # one a step
    kind: str = ""  # the badge of a counter; "" for a value of the algorithm itself
    role: str = ""  # the colour of such a value


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
    args: np.ndarray  # integer or float (steps, n)


@dataclass(frozen=True)
class Told:
    of: str
    words: Captions  # a row a cell, where those of a scene have one a step
    links: Mapping[str, np.ndarray] = field(default_factory=dict)  # integer (cells, n) by tensor; -1: none


@dataclass(frozen=True)
class Scene:
    key: str  # equal keys mean equal scenes; a player keeps its step while the key stays
    title: str
    tensors: tuple[Tensor, ...]
    groups: tuple[Group, ...]
    steps: int
    step_name: str  # what one step is: "column"
    order_name: str  # in whose order the steps run: "explaining order"
    order_note: str  # how that order differs from the GPU's
    writes: tuple[Write, ...]
    captions: Captions
    matmuls: tuple[MatMul, ...] = ()
    reads: tuple[Read, ...] = ()
    readings: tuple[Reading, ...] = ()
    told: tuple[Told, ...] = ()
    source: Source | None = None
    lanes: Lanes | None = None
    sums: tuple[Sum, ...] = ()
    views: tuple[View, ...] = ()
    finite: bool = True  # False: cells, readings and captions may hold infinities and NaN, and print them
    version: int = field(default=VERSION, init=False)

    def __post_init__(self):
        validate(self)

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def write(self, target: str) -> Write:
        """The first write into a tensor."""
        return next(w for w in self.writes if w.target == target)

    def caption(self, t: int) -> str:
        """The sentence of step t with its role marks taken out: the scene's text form."""
        return _MARK.sub(r"\1", self.marked_caption(t))

    def marked_caption(self, t: int) -> str:
        template = self.captions.templates[int(self.captions.kind[t])]
        args = np.asarray(self.captions.args[t])
        return template.format(*(number(a) for a in (args.astype("f4") if args.dtype.kind == "f" else args)))

    def cells(self, name: str, t: int | None = None) -> np.ndarray:
        """float32: values of a tensor's cells after step t (the last when left out), NaN where unwritten."""
        tensor, last = self.tensor(name), self.steps - 1 if t is None else t
        values = np.full(tensor.size, np.nan, np.float32)
        if tensor.values is not None:
            values[:] = np.ravel(tensor.values)
        steps, cells, written = self._events(name)
        done = np.searchsorted(steps, last, side="right")
        values[cells[:done]] = written[:done]  # where a cell comes twice, the later write stays
        return values

    @cached_property
    def _known(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return {}

    def _events(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(step, cell, value) of every write into a tensor, in order of the steps."""
        if name not in self._known:
            parts = [self._written(w) for w in self.writes if w.target == name]
            columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [
                np.zeros(0, int)
            ] * 3
            order = np.argsort(columns[0], kind="stable")
            self._known[name] = tuple(column[order] for column in columns)
        return self._known[name]

    def _written(self, w: Write) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        cells = np.arange(self.tensor(w.target).size) if w.cells is None else np.ravel(w.cells).astype(int)
        steps = np.resize(w.steps, cells.size).astype(int)
        if w.values is not None:
            return steps, cells, np.ravel(w.values).astype(np.float32)
        index, values = np.ravel(w.index).astype(int), np.zeros(cells.size, np.float32)
        for v in self.views:
            if v.tensor == w.source:
                index = np.append(np.ravel(v.index), -1).astype(int)[index]
                w = replace(w, source=v.source, index=index)
        moments = np.unique(steps) if any(other.target == w.source for other in self.writes) else [None]
        for t in moments:  # a source that never changes is asked once
            now = steps == t if t is not None else np.ones(cells.size, bool)
            values[now] = np.append(self.cells(w.source, t), np.float32(0))[index[now]]
        return steps, cells, values


def number(v: float) -> str:
    """As captions print it: whole numbers plain, others to four digits, a true minus; a power of ten from 10^15 on."""
    if not np.isfinite(v):
        return "NaN" if np.isnan(v) else "∞" if v > 0 else "−∞"
    if abs(v) >= HUGE:
        return f"{v:.3e}".replace("-", "−").replace("e+", "·10^")
    whole = float(v).is_integer()
    text = str(int(v)) if whole else np.format_float_positional(float(v), precision=4, unique=False, fractional=False, trim="-")  # fmt: skip
    return text.replace("-", "−")


# -- the contract, checked -----------------------------------------------------------------------
def validate(scene: Scene) -> None:
    """Raise SceneError naming the part of the contract that is broken."""

    def need(condition, message):
        if not condition:
            raise SceneError(f"scene {scene.key!r}: {message}")

    finite = _finite if scene.finite else lambda array: True
    need(1 <= scene.steps <= MOST_STEPS, f"a scene has 1 to {MOST_STEPS:,} steps, not {scene.steps:,}")
    tensors = {t.name: t for t in scene.tensors}
    need(len(tensors) == len(scene.tensors), "two tensors share a name")
    for t in scene.tensors:
        _check_tensor(t, need, finite)
    total = sum(t.size for t in scene.tensors)
    need(total <= MOST_CELLS, f"{total:,} cells; at most {MOST_CELLS:,} are shown")
    for g in scene.groups:
        need(g.place in PLACES, f"place {g.place!r} is none of {', '.join(PLACES)}")
    shown = [name for g in scene.groups for row in g.rows for name in row]
    need(sorted(shown) == sorted(tensors), "the groups must name every tensor once")
    for v in scene.views:
        _check_view(v, scene, tensors, need)
    for w in scene.writes:
        _check_write(w, tensors, scene.steps, need, finite)
    need(not _circular(scene.writes), "copies go round in a circle")
    for w in scene.writes:
        if w.source and tensors[w.source].values is None:
            known = np.isfinite(scene._written(w)[2]).all()
            need(known, f"the copy into {w.target} reads cells of {w.source} that nothing has written yet")
    for r in scene.reads:
        need(r.source in tensors, f"a read names {r.source!r}, which is no tensor")
        start = np.asarray(r.start)
        fits = len(start) == scene.steps + 1 and start[0] == 0 and start[-1] == np.size(r.cells)
        need(fits and (np.diff(start) >= 0).all(), f"the reads of {r.source} do not divide into steps")
        need(_within(r.cells, 0, tensors[r.source].size), f"the reads leave {r.source}")
    for m in scene.matmuls:
        _check_matmul(m, tensors, scene.steps, need)
    for s in scene.sums:
        _check_sum(s, tensors, need)
    for r in scene.readings:
        need(np.size(r.values) == scene.steps, f"reading {r.label!r} has not one value a step")
        need(finite(r.values), f"reading {r.label!r} has values that are not finite")
        need(r.kind in KINDS, f"reading {r.label!r}: kind {r.kind!r} is no badge")
        need(r.role in ("", *ROLES), f"reading {r.label!r}: role {r.role!r} is none of {', '.join(ROLES)}")
    for told in scene.told:
        _check_told(told, tensors, need, finite)
    _check_captions(scene.captions, scene.steps, need, finite)
    if scene.lanes is not None:
        same = len(scene.lanes.warp) == len(scene.lanes.mask) == scene.steps
        need(same, "lanes and steps differ in number")
    if scene.source is not None:
        need(np.size(scene.source.lines) in (1, scene.steps), "source lines and steps differ in number")


def _within(array, low: int, stop: int) -> bool:
    array = np.asarray(array)
    return array.size == 0 or bool(array.dtype.kind in "iu" and array.min() >= low and array.max() < stop)


def _finite(array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(array).astype("f4")).all())


def _check_tensor(t: Tensor, need, finite) -> None:
    need(re.fullmatch(r"\w{1,32}", t.name), f"{t.name!r} is no name of a tensor: letters and digits alone")
    need(t.role in ROLES, f"{t.name}: role {t.role!r} is none of {', '.join(ROLES)}")
    need(min(t.planes, t.rows, t.cols) >= 1, f"{t.name} is empty")
    need(min(t.pad) >= 0, f"{t.name}: padding below zero")
    need(t.col_index is None or len(t.col_index) == t.cols, f"{t.name}: a column has no index")
    if t.values is not None:
        need(np.size(t.values) == t.size, f"{t.name}: {np.size(t.values)} values for {t.size} cells")
        need(finite(t.values), f"{t.name} has values that are not finite")


def _check_view(v: View, scene: Scene, tensors, need) -> None:
    need({v.tensor, v.source} <= tensors.keys(), "a view names no tensor")
    need(np.size(v.index) == tensors[v.tensor].size, f"the view {v.tensor} misses cells")
    need(_within(v.index, -1, tensors[v.source].size), f"the view {v.tensor} leaves {v.source}")
    written = tensors[v.tensor].values is not None or any(w.target == v.tensor for w in scene.writes)
    need(not written, f"the view {v.tensor} is written")


def _check_write(w: Write, tensors, steps: int, need, finite) -> None:
    need(w.target in tensors, f"a write names {w.target!r}, which is no tensor")
    size = tensors[w.target].size
    count = size if w.cells is None else np.size(w.cells)
    need(w.cells is None or _within(w.cells, 0, size), f"a write leaves {w.target}")
    need(
        len(w.steps) and count % len(w.steps) == 0,
        f"the steps of a write into {w.target} do not divide its cells",
    )
    need(_within(w.steps, 0, steps), f"a write into {w.target} leaves the steps")
    need(
        (w.values is None) == bool(w.source), f"a write into {w.target} needs values or a source, one of them"
    )
    if w.values is not None:
        need(np.size(w.values) == count, f"{w.target}: {np.size(w.values)} values for {count} writes")
        need(finite(w.values), f"values written into {w.target} are not finite")
        return
    need(w.source in tensors, f"a write names {w.source!r}, which is no tensor")
    need(w.index is not None and np.size(w.index) == count, f"the copy into {w.target} misses cells")
    need(_within(w.index, -1, tensors[w.source].size), f"the copy into {w.target} leaves {w.source}")


def _circular(writes: tuple[Write, ...]) -> bool:
    """Whether some tensor is copied, by way of others, into itself."""
    sources = {}
    for w in writes:
        if w.source:
            sources.setdefault(w.target, set()).add(w.source)
    while sources:
        free = [target for target, of in sources.items() if not of & sources.keys()]
        if not free:
            return True
        for target in free:
            del sources[target]
    return False


def _check_matmul(m: MatMul, tensors, steps: int, need) -> None:
    need({m.left, m.right, m.out} <= tensors.keys(), "a matmul names no tensor")
    left, right, out = tensors[m.left], tensors[m.right], tensors[m.out]
    agree = left.planes == right.planes == 1 and (left.cols, left.rows * right.cols) == (right.rows, out.size)
    need(agree, f"{m.out} = {m.left} x {m.right}: the extents do not agree")
    need(m.rest is None or np.size(m.rest) == out.size, f"the rest of {m.out} misses cells")
    need(m.rest is None or _finite(m.rest), f"the rest of {m.out} is not finite")
    counted = m.upto is None or (np.size(m.upto) == steps and _within(m.upto, 0, left.cols + 1))
    need(counted, f"{m.out}: the terms summed by each step are not told")


def _check_told(told: Told, tensors, need, finite) -> None:
    need({told.of, *told.links} <= tensors.keys(), "what is told of cells names no tensor")
    size = tensors[told.of].size
    _check_captions(told.words, size, need, finite, "cell")
    for source, cells in told.links.items():
        fits = np.ndim(cells) == 2 and len(cells) == size and _within(cells, -1, tensors[source].size)
        need(fits, f"what is told of {told.of} leaves {source}")


def _check_sum(s: Sum, tensors, need) -> None:
    need({s.out, s.right, s.left or s.right} <= tensors.keys(), "a sum names no tensor")
    start, terms = np.asarray(s.start), np.size(s.cells)
    fits = len(start) == tensors[s.out].size + 1 and start[0] == 0 and start[-1] == terms
    need(fits and (np.diff(start) >= 0).all(), f"the terms of {s.out} do not divide into its cells")
    need(np.size(s.factors) == terms, f"the sums of {s.out}: not a factor for each term")
    need(_within(s.cells, 0, tensors[s.right].size), f"the sums of {s.out} leave {s.right}")
    if s.left:
        need(_within(s.factors, 0, tensors[s.left].size), f"the sums of {s.out} leave {s.left}")
    else:
        need(_finite(s.factors), f"the sums of {s.out} have factors that are not finite")


def _check_captions(c: Captions, steps: int, need, finite, what: str = "step") -> None:
    need(len(c.kind) == len(c.args) == steps, f"captions and {what}s differ in number")
    need(np.ndim(c.args) == 2, f"captions are filled from one row of numbers a {what}")
    need(_within(c.kind, 0, len(c.templates)), f"a {what} has no caption")
    for template in c.templates:
        # Filled here and by the player, so no braces but theirs: no "{}", no "{0:.2f}".
        asked = [int(n) for n in _FIELD.findall(template) if n]
        plain, width = _FIELD.sub("", template), np.shape(c.args)[1]
        fits = not re.search("[{}]", plain) and max(asked, default=-1) < width
        need(fits, f"the caption {template[:60]!r} cannot be filled from {width} numbers")
        for _, role in _MARK.findall(template):
            need(role in ROLES, f"the caption {template[:60]!r}: role {role!r} is none of {', '.join(ROLES)}")
    need(finite(c.args), "captions hold numbers that are not finite")
