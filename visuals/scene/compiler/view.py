"""A View: what of a kernel's run is on the stage, which lines are its steps, and what is said of them.

A name in a sentence or a condition is a tensor of the view or one of its `names`, else a C++ variable that the line sees, else a buffer or
a shared array that the step reads or writes, else one of these: thread, lane and warp (in the block), block, threads and blocks (how many
are shown), active and idle (how many of the threads), visit and visits (of the step's line), and the kernel's defines. Its value is that of
the example thread. In a condition it is that of each thread.

* `m.before` is the value before the step; `running.m` a member, `sum[0][1]` an element of a variable that is an array.
* Of a buffer or a shared array `x` is the value that the thread has read, or written if it has read none; `x.new` the one that it has
  written, `x.at` the element; the last one of several, `x.largest` the largest. `partial[thread + stride]` is an element before the step.
* `x.times` is how many elements of x the thread has read, or written if it has read none; `x.ties` how many of these are the largest;
  `x.again` how many of these have been read, or written, before in the launch.
* Functions are in expressions.py. `min(col)` is of the active threads, in a reading of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.i18n import mark
from visuals.scene.parts import Group
from visuals.scene.source import Mark

STEP = mark("step")
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
class Step:
    """A visit of a line is a step, up to the next visit of a line that a step has. The first sentence that fits is said. `fold`: said once
    instead of a repetition, but for its first two steps and its last; {first} and {last} are the numbers of the visits between.

    `lead`: a sentence that comes first in each case. `to`: the last of its lines. `inside`: the line of the call, if the line is in a
    function. `merge`: visits that follow each other are one step; `each`: while this expression keeps its value. `by`: a step for
    each value of this expression, of the threads that have it. `together`: it is a step of all threads, also in a view of groups. `shows`: by tensor, the variable whose values it shows at this step alone. `cells`: by tensor,
    what is said of the cells that the step writes."""

    at: Mark
    cases: tuple[Say, ...]
    lead: str = ""
    fold: str = ""
    to: Mark = ""
    inside: Mark = ""
    merge: bool = False
    by: str = ""
    together: bool = False
    each: str = ""
    shows: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)


def step(at: Mark, *say: str | Say, **fields: Any) -> Step:
    """Returns a step with its sentences. `fields`: as of Step."""
    return Step(at, tuple(Say(text) if isinstance(text, str) else text for text in say), **fields)


@dataclass(frozen=True)
class Shown:
    """A tensor of the stage."""

    name: str
    role: str
    title: str
    note: str = ""
    symbol: str = ""


@dataclass(frozen=True)
class Buffer(Shown):
    """An array in global memory, by the kernel's name or the program's. `of`: its name, if the tensor has another. `dtype`: what its bytes
    are read as. `every`: only elements first, first + step and so on, as (first, step)."""

    of: str = ""
    dtype: str = ""
    every: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class Shared(Shown):
    """A shared array; of several blocks, a row for each. `rows`: the kinds of steps that write a new row. `during`: those that read and
    write it, () for all. Others as Buffer."""

    of: str = ""
    dtype: str = ""
    every: tuple[int, int] = (0, 1)
    rows: tuple[str, ...] = ()
    during: tuple[str, ...] = ()


@dataclass(frozen=True)
class PerThread(Shown):
    """Variables of each thread: a column a thread, a row an element of an array; of several blocks, a tensor for each. `of`: the variables.
    It shows the one that was given a value last. `rows`: the kinds of steps that write a new row. `turn`: only of the threads whose step it
    is, in the same cells for each group of the view; of one thread an array has its own rows and columns."""

    of: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    turn: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        return self.of or (self.name,)


@dataclass(frozen=True)
class Bytes:
    """Bytes of a tensor, or of several ("Q K V"), that all threads have read (op "ld") or written ("st") so far, divided by `per`. `again`:
    only of elements that some thread has read, or written, before in the launch."""

    label: str
    of: str
    op: str
    per: str = "1"
    again: bool = False


@dataclass(frozen=True)
class Number:
    """A number of the algorithm: an expression of all threads, after each step of the kinds `during`; `start` before the first."""

    label: str
    value: str
    role: str
    during: tuple[str, ...]
    start: float = 0.0


@dataclass(frozen=True)
class View:
    """`launches`: the steps of each launch of the program, by kind. The order is that of the search: a line belongs to the first step that
    has it. Titles of groups are sentences too. `threads`: how many of a block are shown, the first ones; 0 for all.

    `group`: so many threads of a block take a step together, one group after the other between two barriers: 32 for warps, 1 for threads, 0
    for all. From thread `alone` of those watched on, all are one group; 0: none. From thread `detailed` on, all that a group does between
    two barriers is one step, its first; 0: none. `others`: of each launch, what is said of the blocks that are not watched: they follow in
    one step, if it is not "". `products`: matrix products of tensors, as (left, right, out). `step_name`: what a step is. `order`: the order
    of the steps, and what is said of it. `names`: expressions, for what the kernel computes without a variable."""

    tensors: tuple[Shown, ...]
    groups: tuple[Group, ...]
    launches: tuple[Mapping[str, Step], ...]
    readings: tuple[Bytes | Number, ...] = ()
    threads: int = 0
    group: int = 0
    alone: int = 0
    detailed: int = 0
    others: tuple[str, ...] = ()
    products: tuple[tuple[str, str, str], ...] = ()
    step_name: str = STEP
    order: tuple[str, str] = (ORDER, ORDER_NOTE)
    names: Mapping[str, str] = field(default_factory=dict)

    def shown(self, name: str) -> Shown | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)
