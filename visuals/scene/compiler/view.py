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
from dataclasses import dataclass, field, replace
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
    """A tensor of the stage. `plane`: what a plane is."""

    name: str
    role: str
    title: str
    note: str = ""
    symbol: str = ""
    plane: str = field(default="", kw_only=True)  # what a plane is, of a tensor with several


@dataclass(frozen=True)
class Buffer(Shown):
    """An array in global memory, by the kernel's name or the program's. `of`: its name, if the tensor has another. `dtype`: what its bytes
    are read as, "bit" for each of its bits. `every`: only elements first, first + step and so on, as (first, step). `stop`: only those before
    it, 0 for all. `shape`: if it is not that of the array. `part`: the rows and columns that are shown, if not
    all; then the note names them if there is no other."""

    of: str = ""
    dtype: str = ""
    every: tuple[int, int] = (0, 1)
    stop: int = 0
    shape: tuple[int, ...] = ()
    part: tuple[range, range] | None = None

    @property
    def elements(self) -> slice:
        return slice(self.every[0], self.stop or None, self.every[1])


@dataclass(frozen=True)
class Shared(Shown):
    """A shared array; of several blocks, a row for each. `rows`: the kinds of steps that write a new row. `during`: those that read and
    write it, () for all. `lines`: an expression, in how many lines a row is shown: neighbours are in different lines, and what is left over
    is not shown. A row is a plane then. `box`: only these elements of a block, in the same cells for each: the first, the planes, rows and
    columns, from one row to the next, and from one plane to the next if there are others between them. Others as Buffer."""

    of: str = ""
    dtype: str = ""
    every: tuple[int, int] = (0, 1)
    rows: tuple[str, ...] = ()
    during: tuple[str, ...] = ()
    lines: str = ""
    box: tuple[int, ...] | None = None

    @property
    def elements(self) -> slice:
        return slice(self.every[0], None, self.every[1])


@dataclass(frozen=True)
class OfThread(Shown):
    """A variable of one thread, in its own shape."""

    of: str = ""
    thread: int = 0


@dataclass(frozen=True)
class PerThread(Shown):
    """Variables of each thread: a column a thread, a row an element of an array; of several blocks, a tensor for each. Numbers of a block
    with rows of threads have rows like them; of one thread, an array has its own rows and columns. `of`: the variables. It shows the one
    that was given a value last. `rows`: the kinds of steps that write a new row. `during`: those that write it, () for all. `lines`: as of
    Shared. `threads`: as of the view. `turn`: only of the threads whose step it is, in the same cells for each group of the view.

    `place`: the row and the column of each number, expressions in which {cell} is its place in its array: one tensor of all threads, of which
    `part` is shown. `hollow`: its cells stay empty; those of the numbers that a step sees count as read. `adds`: numbers in one
    place add up, of a sum that each thread has a part of."""

    of: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    during: tuple[str, ...] = ()
    lines: str = ""
    threads: int = 0
    turn: bool = False
    place: tuple[str, str] = ("", "")
    part: tuple[range, range] = (range(0), range(0))
    hollow: bool = False
    adds: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        return self.of or (self.name,)


@dataclass(frozen=True)
class Writers(Shown):
    """Which threads of the watched blocks write the elements of a buffer in the launch, from the first step on: of `per` threads the number of
    the group. Rows and columns that repeat the one before are left out."""

    of: str = ""
    per: int = 1


@dataclass(frozen=True)
class Derived(Shown):
    """Numbers of threads in an order of their own: each active thread of a step of the kinds `during` puts `value` into `cell`, which
    are expressions; not if the cell is negative. A tensor's name as `value` is a copy of what the thread has read there. `columns`: of a row.
    `rows`: such a step begins a row. Those of one name are one tensor, with the steps and the expressions of each."""

    value: str = ""
    cell: str = "lane"
    columns: int = 32
    during: tuple[str, ...] = ()
    rows: bool = False


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
