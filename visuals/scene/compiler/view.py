"""A View: what of a kernel's run is on the stage, which lines are its steps, and what is said of them.

A name in a sentence or a condition is a tensor of the view or one of its `names`, else a C++ variable that the line sees, else a buffer or
a shared array that the step reads or writes, else one of these: thread, lane and warp (in the block), block, threads and blocks (how many
are shown), others (how many blocks are not), active and idle (how many of the threads), visit and visits (of the step's line), line
(its number), waits and waited (whether the thread is at the line too when it goes on, and when it was last active: others took steps
in between), and the kernel's defines. Its value is that of the example thread. In a condition it is that of each thread.

* `m.before` is the value before the step; `running.m` a member, `sum[0][1]` an element of a variable that is an array.
* Of a buffer or a shared array `x` is the value that the thread has read, or written if it has read none; `x.new` the one that it has
  written, `x.at` the element; the last one of several, `x.largest` the largest. `partial[thread + stride]` is an element before the step.
* `x.times` is how many elements of x the thread has read, or written if it has read none; `x.ties` how many of these are the largest;
  `x.again` how many of these have been read, or written, before in the launch.
* Functions are in expressions.py. `min(col)` is of the active threads, in a reading of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from kernels.engines.emulator.ptx.kernel import Line
from kernels.i18n import mark
from visuals.scene.parts import Group
from visuals.scene.source import Mark

STEP = mark("step")
SHARED_MEMORY = "shared-memory"
BLOCK = -1  # a group of threads: a block, which waits at no barrier of another
ORDER = mark("step by step")
ORDER_NOTE = mark(
    "One step is one line of the kernel, executed by all threads that reach it together. On a GPU the warps of a block run in any order "
    "between two barriers, and other blocks run at the same time. All values are those of the kernel in the emulator."
)


@dataclass(frozen=True)
class Say:
    """A sentence, said if some active thread is `among` (a condition; "": any). The example is the thread among them with the largest
    `pick`, else the first. Of a step without words, "", what it does belongs to the step before."""

    text: str
    among: str = ""
    pick: str = ""


@dataclass(frozen=True)
class Sentence:
    """What is said of a step: a text with numbered fields, the numbers, and the example thread. "": nothing."""

    text: str
    numbers: tuple[float, ...] = ()
    example: int = 0


@dataclass(frozen=True)
class Place:
    """The lines of a statement in a file, and which statement of its first line it is."""

    file: str
    lines: range
    statement: int

    def has(self, line: Line | None, statement: int) -> bool:
        if line is None or line.file != self.file or line.number not in self.lines:
            return False
        return line.number != self.lines.start or statement == self.statement


@dataclass(frozen=True)
class Step:
    """A visit of a line is a step, up to the next visit of a line that a step has. The first sentence that fits is said. `fold`: said once
    instead of a repetition, but for its first two steps and its last; {first} and {last} are the numbers of the visits between. Steps of a
    view that are folded have the same.

    `lead`: a sentence that comes first in each case. `to`: the last of its lines. `lit`: the line that it lights, if not its first.
    `inside`: the line of the call, if the line is in a function. `op`: it has only the loads of its line, "ld", or only the stores, "st";
    `arrange` of the view makes two steps of one visit.

    `merge`: visits that follow each other are one step; `each`: while this expression keeps its value. `by`: threads with the same value of
    this expression take the step together, one group after the other between two barriers; `apart`: a step for each value of this
    expression, of the threads of a group that have it, {part} of {parts}; `together`: one of all threads, also in a view of groups.

    `shows`: by tensor, the variable whose values it shows at this step alone. `cells`: by tensor, what is said of the cells that the step
    writes: {cell} is the cell, and elements of buffers like {x[cell]} are linked, else what the thread has read. `level`: a number of its
    own, {level}. `describe`: makes the sentence, in place of the cases."""

    at: Mark | Place
    cases: tuple[Say, ...]
    lead: str = ""
    fold: str = ""
    to: Mark = ""
    lit: Mark = ""
    by: str = ""
    apart: str = ""
    inside: Mark = ""
    merge: bool = False
    together: bool = False
    each: str = ""
    shows: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    op: str = ""
    level: int = 0
    describe: Callable[[Any], Sentence] | None = None


def step(at: Mark, *say: str | Say, **fields: Any) -> Step:
    """Returns a step with its sentences. `fields`: as of Step."""
    return Step(at, tuple(Say(text) if isinstance(text, str) else text for text in say), **fields)


@dataclass(frozen=True)
class Shown:
    """A tensor of the stage. `of`: the name of what it shows, if it has another. `plane`: what a plane is, of several.

    `place`: the row and the column of each number, or its plane, row and column: expressions, in which {cell} is the number's place in its
    array. `part`: the rows and columns of these that are shown; None: as many as there are. `during`: the kinds of steps that read and write
    it, () for all. `rows`: the kinds of steps that begin a new row, or a new plane if places have planes."""

    name: str
    role: str
    title: str
    note: str = ""
    symbol: str = ""
    _: KW_ONLY
    plane: str = ""
    of: str = ""
    place: tuple[str, ...] = ()
    part: tuple[range | None, ...] = ()
    during: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    def is_during(self, kind: str) -> bool:
        return not self.during or kind in self.during


@dataclass(frozen=True)
class Array(Shown):
    """Numbers in memory. `dtype`: what their bytes are read as, "bit" for each of the bits."""

    _: KW_ONLY
    dtype: str = ""

    @property
    def array(self) -> str:
        return self.of or self.name


@dataclass(frozen=True)
class Buffer(Array):
    """An array in global memory, by the kernel's name or the program's. `shape`: if it is not that of the array. The note names the part
    that is shown if there is no other."""

    _: KW_ONLY
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shared(Array):
    """A shared array; of several blocks, a row for each. A place is that in the array of its {block}."""


@dataclass(frozen=True)
class PerThread(Shown):
    """Variables of each thread, `of` one or several of them: it shows the one that was given a value last. Without places, a column a thread
    and a row an element of an array; of several blocks, a tensor for each. Numbers of a block with rows of threads have rows like them; of
    one thread, an array has its own. `threads`: of a block, or of one thread its number in all; None: those of the view.

    `value`: an expression of the active threads, in place of variables. The name of a tensor is a copy of what the thread has read there.
    Those of one name are one tensor, each with its steps.
    `hollow`: its cells stay empty; those of the numbers that a step sees count as read. `adds`: numbers in one place add up, of a sum that
    each thread has a part of."""

    _: KW_ONLY
    threads: range | None = None
    value: str = ""
    hollow: bool = False
    adds: bool = False

    @property
    def variables(self) -> list[str]:
        return [] if self.value else (self.of or self.name).split()


@dataclass(frozen=True)
class Writers(Shown):
    """Which threads of the watched blocks write the elements of a buffer in the launch, from the first step on: of `per` threads the number of
    the group. Rows and columns that repeat the one before are left out."""

    _: KW_ONLY
    per: int = 1


def box(first: int, rows: int, columns: int, pitch: int, planes: int = 1, stride: int = 0) -> dict[str, Any]:
    """Returns the fields of an array that is shown in part: from an element on, `pitch` from one row to the next, and `stride` from one
    plane to the next if there are others between them."""
    at = f"(cell - {first})" if planes == 1 else f"(cell - {first}) % {stride or rows * pitch}"
    place, part = (f"{at} // {pitch}", f"{at} % {pitch}"), (range(rows), range(columns))
    if planes == 1:
        return {"place": place, "part": part}
    return {"place": (f"(cell - {first}) // {stride or rows * pitch}", *place), "part": (range(planes), *part)}


def every(first: int, step: int, shape: tuple[int, ...] = ()) -> dict[str, Any]:
    """Returns the fields of an array of which the elements first, first + step and so on are shown, in the planes, rows and columns of a
    shape."""
    number, chosen = f"cell // {step}", f"cell % {step} == {first}"
    if not shape:
        return {"place": ("block", f"where({chosen}, {number}, -1)"), "part": (None, None)}
    planes, rows, columns = (1, *shape)[-3:]
    plane = f"where({chosen}, {number} // {rows * columns}, -1)"
    return {
        "place": (plane, f"{number} // {columns} % {rows}", f"{number} % {columns}"),
        "part": tuple(map(range, (planes, rows, columns))),
    }


def row_of(thread: int) -> dict[str, Any]:
    """Returns the fields of an array of one thread, in a row."""
    return {"threads": range(thread, thread + 1), "part": (range(1), None)}


def in_turn(group: int) -> dict[str, Any]:
    """Returns the fields of variables in the same cells for each group of so many threads, of the threads whose step it is."""
    return {"place": ("cell", "turn"), "part": (None, range(group))}


@dataclass(frozen=True)
class Bytes:
    """Bytes of a tensor, or of several ("Q K V"), that all threads have read (op "ld") or written ("st") so far, divided by `per`.
    `again`: only of elements that some thread has read, or written, before in the launch; `once`: only of others. `of` "": of all global
    memory, with those of the other blocks after the step in which they follow, as counted in the build that is measured. Like those
    counts: without atomic updates, and an element that two instructions of a step read counts once. SHARED_MEMORY: of all arrays there,
    with `op` "" in both directions."""

    label: str
    of: str
    op: str
    per: str = "1"
    again: bool = False
    once: bool = False


@dataclass(frozen=True)
class Number:
    """A number of the algorithm, or without `role` a count: an expression of all threads, after each step of the kinds `during`; `start`
    before the first. `adds`: it is added to the number before."""

    label: str
    value: str
    role: str
    during: tuple[str, ...]
    start: float = 0.0
    adds: bool = False


@dataclass(frozen=True)
class View:
    """`launches`: the steps of each launch of the program, by kind. The order is that of the search: a line belongs to the first step that
    has it. Titles of groups are sentences too. `threads`: how many of a block are shown, the first ones; 0 for all.

    `group`: so many threads of a block take a step together that has no `by`: 32 for warps, 1 for threads, BLOCK for one block after the
    other, 0 for all. From thread `alone` of those watched on, all are one group; 0: none. From thread `detailed` on, all that a group does
    between two barriers is one step, its first; 0: none.

    `names`: expressions, for what the kernel computes without a variable. `others`: of each launch, what is said of the blocks that are not
    watched, if there are any: they follow in one step, if it is not "". `calls`: by the routine of a library, what is said of its call
    after a launch, one step. `products`: matrix products of tensors, as (left, right, out). `step_name`: what a step is. `order`: the order
    of the steps, and what is said of it. `arrange`: makes other steps of those that the marks give."""

    tensors: tuple[Shown, ...]
    groups: tuple[Group, ...]
    launches: tuple[Mapping[str, Step], ...]
    readings: tuple[Bytes | Number, ...] = ()
    threads: int = 0
    group: int = 0
    alone: int = 0
    detailed: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    calls: Mapping[str, str] = field(default_factory=dict)
    products: tuple[tuple[str, str, str], ...] = ()
    step_name: str = STEP
    order: tuple[str, str] = (ORDER, ORDER_NOTE)
    arrange: Callable[[Any, Any], Any] | None = None  # (Recording, list of Visit) -> list of Visit

    def shown(self, name: str) -> Shown | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


def unfolded(view: View) -> View:
    """Returns the view with every step of repetitions."""
    return replace(
        view, launches=tuple({kind: replace(s, fold="") for kind, s in steps.items()} for steps in view.launches)
    )
