"""The control flow of a kernel, from its code alone: successors of blocks, loops, barriers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache

from kernels.engines.emulator.ptx.kernel import Instruction, Kernel, Operand
from kernels.engines.emulator.ptx.registers import names, read, written

# Instructions that end a basic block: after them threads may diverge, end or wait. `ending` separates
# barriers of the block from those of lanes in a mask and from those of a cluster.
ENDINGS = {
    "bra": "branch",
    "brx": "table",
    "call": "frame",
    "return": "frame",
    "ret": "return",
    "exit": "return",
    "trap": "trap",
    "bar": "barrier",
    "barrier": "barrier",
    "shfl": "lanes",
    "vote": "lanes",
    "match": "lanes",
    "redux": "lanes",
    "elect": "lanes",
    **dict.fromkeys(("mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"), "lanes"),
    "brkpt": "trap",
    "mbarrier": "wait",
}
# Loads that read memory again each time, and so may wait for another thread: PTX ISA, "Memory Consistency Model".
STRONG = {"volatile", "relaxed", "acquire", "cg", "cv", "mmio"}
ORDERS = ("membar", "fence", "nanosleep")


def ending(i: Instruction) -> str:
    """Returns how an instruction ends a basic block: "branch", "table", "frame" (a call of a function with a frame, or
    its return), "return" (of the kernel), "trap", "barrier" (of the block), "lanes" (the lanes in its mask wait for
    each other, without a mask all of the warp) or "wait" (threads wait for a phase of an mbarrier, or for their cluster); "" if it does not."""
    kind = ENDINGS.get(i.opcode.partition(".")[0], "")
    if kind == "lanes":
        return kind if ".sync" in i.opcode else ""
    if kind == "wait":
        return kind if ".try_wait" in i.opcode else ""
    if kind == "barrier" and ".cluster." in i.opcode:
        return "wait" if ".wait" in i.opcode else ""
    if kind == "barrier":
        return "lanes" if ".warp." in i.opcode else kind
    return kind


class Loop:
    """A loop with the loops around it: its instructions, those of the loop alone (`inner`), and whether it `ends`, that is, a
    path leads from it to the kernel's end."""

    def __init__(self, body: Sequence[Instruction], inner: Sequence[Instruction], ends: bool):
        self.body, self.inner, self.ends = body, inner, ends

    @cached_property
    def synchronizes(self) -> bool:
        """Whether its iterations involve other threads, at a barrier or in a warp instruction."""
        return any(ending(i) in ("barrier", "lanes") or i.opcode == "activemask.b32" for i in self.inner)

    @cached_property
    def polls(self) -> bool:
        """Whether its branches depend on memory that it reads in each iteration, so that another thread may end it."""
        return bool(self.polled)

    @cached_property
    def polled(self) -> list[Instruction]:
        """The reads that another thread may end it by."""
        loads = [i for i in self.body if i.opcode.startswith(("ld.", "ldu.", "atom.", "mbarrier."))]
        strong = [i for i in loads if i.parts[0] in ("atom", "mbarrier") or STRONG & set(i.parts)]
        if loads and any(i.opcode.startswith(ORDERS) for i in self.body):
            strong = loads
        deciding = {id(source) for source in self._deciding[1]} if strong else ()
        return [i for i in strong if id(i) in deciding]

    @property
    def registers(self) -> set[str]:
        """The registers that its branches depend on."""
        return self._deciding[0]

    @cached_property
    def _deciding(self) -> tuple[set[str], list[Instruction]]:
        """The registers that its branches depend on, and the instructions that write them."""
        if any(i.opcode.startswith("call") for i in self.body):  # the registers that a function reads are unknown here
            return {name for i in self.body for name in read(i) | written(i)}, list(self.body)
        writers: dict[str, list[Instruction]] = {}
        for i in self.body:
            for name in written(i):
                writers.setdefault(name, []).append(i)
        registers: set[str] = set()
        sources: list[Instruction] = []
        todo = [i.guard[0] for i in self.body if i.guard is not None]
        todo += [name for i in self.body if i.opcode.startswith("brx") for name in names(i.operands[0])]
        while todo:
            name = todo.pop()
            if name not in registers:
                registers.add(name)
                sources += writers.get(name, ())
                if any(_is_own_memory(i) for i in writers.get(name, ())):  # what was stored there is unknown here
                    return set(writers), list(self.body)
                todo += [source for i in writers.get(name, ()) for source in read(i)]
        return registers, sources


def _is_own_memory(i: Instruction) -> bool:
    """Returns whether an instruction loads a variable of the thread, as code that is not optimised does."""
    if i.parts[0] != "ld" or i.operands[1].kind != "mem":
        return False
    return "local" in i.parts or str(i.operands[1].root.value).startswith("%SP")


class Flow:
    """Basic blocks and loops of `code`. `endings`: how a block ends, by instruction. `stop[pc]`: the end of the
    straight-line code from pc on, an ending or the next block. `clocks`: whether an instruction reads a clock."""

    def __init__(self, code: Sequence[Instruction]):
        self.code = code
        self.endings = {pc: kind for pc, i in enumerate(code) if (kind := ending(i))}
        clocks = {pc for pc, i in enumerate(code) if any(is_clock(o) for o in i.operands)}
        self.clocks = bool(clocks)
        # A clock begins a block, so that the instructions counted up to there have run.
        leaders = {0, *clocks} | {t for i in code for t in i.targets} | {pc + 1 for pc in self.endings}
        self.leaders = dict.fromkeys(sorted(leaders - {len(code)}))
        self.stop = [len(code)] * (len(code) + 1)
        stop = len(code)
        for pc in range(len(code) - 1, -1, -1):
            stop = pc if pc in self.endings else (pc + 1 if pc + 1 in leaders else stop)
            self.stop[pc] = stop
        self._loops: dict[int, Loop] = {}
        self._past: dict[int, frozenset[int]] = {}
        self._later: dict[int, set[int]] = {}

    def following(self, pc: int) -> tuple[int, ...]:
        """Returns the blocks that may follow the block that begins at pc; len(code) is the end."""
        at = self.stop[pc]
        if at not in self.endings or (at != pc and at in self.leaders):  # a block of the ending alone
            return (at,)
        i, kind = self.code[at], self.endings[at]
        if kind in ("return", "trap"):
            return (len(self.code), at + 1) if i.guard else (len(self.code),)
        falls = kind not in ("branch", "table", "frame") or i.guard is not None
        return (*i.targets, at + 1) if falls else i.targets

    def reachable(self, pc: int) -> set[int]:
        """Returns the blocks that control may reach from pc, including the one at pc."""
        return _closure(pc, lambda at: self.following(at) if at < len(self.code) else ())

    def leading(self, pc: int) -> set[int]:
        """Returns the blocks from which control may reach the block pc, including itself."""
        return _closure(pc, lambda at: self._before.get(at, ()))

    @cached_property
    def _before(self) -> dict[int, list[int]]:
        before: dict[int, list[int]] = {}
        for block in self.leaders:
            for n in self.following(block):
                before.setdefault(n, []).append(block)
        return before

    def loop(self, target: int) -> Loop:
        """Returns the loop around the block `target`, the target of a backward branch."""
        if target not in self._loops:
            self._loops[target] = self._loop(target)
        return self._loops[target]

    def _loop(self, target: int) -> Loop:
        after = self.reachable(target)
        around = after & self.leading(target)
        back = [at for at in self._before.get(target, ()) if at >= target and at in around]
        inner = {target}.union(*(_closure(at, lambda b: self._before.get(b, ()) if b != target else ()) for at in back))
        inner = inner & around if back else around
        return Loop(self._instructions(around), self._instructions(inner), len(self.code) in after)

    def _instructions(self, blocks: Iterable[int]) -> list[Instruction]:
        return [self.code[at] for b in blocks for at in range(b, min(self.stop[b] + 1, len(self.code)))]

    @cached_property
    def may_wait_for_others(self) -> bool:
        """Whether threads may wait for others in a loop, or never leave one."""
        loops = (self.loop(target) for target, _ in self._back_edges)
        return any(loop.polls or not loop.ends for loop in loops)

    def waits_at(self, branch: int, target: int) -> bool:
        """Whether threads that take a branch back to a loop wait there for others. In a loop around one that polls they have waited before."""
        edge = target, branch
        inside = (e for e in self._back_edges if edge[0] <= e[0] and e[1] <= branch and e != edge)
        return self.loop(target).polls and not any(self.loop(to).polls for to, _ in inside)

    @cached_property
    def polled(self) -> set[int]:
        """The reads of loops that another thread may end them by."""
        polled = {id(i) for target, _ in self._back_edges for i in self.loop(target).polled}
        return {pc for pc, i in enumerate(self.code) if id(i) in polled}

    @cached_property
    def _back_edges(self) -> list[tuple[int, int]]:
        """The targets and branches that lead back."""
        branches = ((i.targets[0], pc) for pc, i in enumerate(self.code) if i.parts[0] == "bra")
        return [(target, pc) for target, pc in branches if target <= pc]

    def past(self, barrier: int) -> frozenset[int]:
        """Returns the blocks after a barrier from which no path leads back to it, without those that only return.

        A thread in one of these blocks that did not wait at the barrier with the others can no longer reach it.
        """
        if barrier not in self._past:
            before = set().union(*(self.leading(self._block_of(pc)) for pc in self.copies(barrier)))
            after = self.reachable(barrier + 1) - before - {len(self.code)}
            self._past[barrier] = frozenset(b for b in after if self.endings.get(b) not in ("return", "trap"))
        return self._past[barrier]

    @cached_property
    def detours(self) -> set[int]:
        """The blocks past a barrier to which a path leads around it, from a block that comes before it. A thread that runs one of them
        can be one that the others wait for in vain."""
        blocks = list(self.leaders)
        bit = {block: 1 << n for n, block in enumerate(blocks)}
        bit[len(self.code)] = 0
        reach = dict(bit)
        changed = True
        while changed:
            changed = False
            for block in reversed(blocks):
                now = bit[block]
                for n in self.following(block):
                    now |= reach[n]
                changed |= now != reach[block]
                reach[block] = now
        found: set[int] = set()
        for barrier in (pc for pc, kind in self.endings.items() if kind == "barrier"):
            copies = self.copies(barrier)
            of_copies = sum({bit[self._block_of(pc)] for pc in copies})
            for block in blocks:
                if reach[block] & of_copies and self.stop[block] not in copies:
                    found |= {n for n in self.following(block) if n in self.past(barrier)}
        return found

    def copies(self, barrier: int) -> list[int]:
        """Returns the instructions that the compiler made of one barrier of the source, as in a loop that it unrolled.
        For a barrier without a place, and for other instructions, it is the instruction alone."""
        i = self.code[barrier]
        if i.parts[0] not in ("bar", "barrier") or not i.place:
            return [barrier]
        same = (i.opcode, i.place)
        at_place = [pc for pc in self.endings if (self.code[pc].opcode, self.code[pc].place) == same]
        # PTX has one place for all statements of a line. Copies come one after the other. Of two barriers on the ways of a branch
        # neither leads to the other.
        return [pc for pc in at_place if pc == barrier or self._in_order(barrier, pc) or self._in_order(pc, barrier)]

    def _in_order(self, first: int, second: int) -> bool:
        """Returns whether control may get from one barrier to another without going back to the start of a loop."""
        if first not in self._later:
            at = self._block_of(first)
            self._later[first] = _closure(at, lambda block: self._forward.get(block, ())) - {at}
        return self._block_of(second) in self._later[first]

    @cached_property
    def _forward(self) -> dict[int, list[int]]:
        """The blocks that follow each block, without the start of a loop around it. A depth-first search ends with such a start after it
        has ended with the block."""
        ended: dict[int, int] = {}
        seen: set[int] = set()
        for start in self.leaders:
            todo = [start]
            while todo:
                block = todo[-1]
                if block in seen:
                    ended.setdefault(todo.pop(), len(ended))
                    continue
                seen.add(block)
                todo += [n for n in self.following(block) if n in self.leaders and n not in seen]
        return {block: [n for n in self.following(block) if ended.get(n, -1) < ended[block]] for block in self.leaders}

    def _block_of(self, pc: int) -> int:
        return next(block for block in reversed(self.leaders) if block <= pc)


@lru_cache(maxsize=64)  # a kernel is launched more often than it is parsed
def flow_of(kernel: Kernel) -> Flow:
    """Returns the control flow of a kernel."""
    return Flow(kernel.code)


def _closure(start: int, neighbours: Callable[[int], Iterable[int]]) -> set[int]:
    seen, todo = {start}, [start]
    while todo:
        new = set(neighbours(todo.pop())) - seen
        seen |= new
        todo += new
    return seen


def is_clock(o: Operand) -> bool:
    """Returns whether an operand is a clock or a timer."""
    return o.kind == "special" and str(o.value).startswith(("clock", "globaltimer"))
