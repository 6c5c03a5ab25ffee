"""What a kernel's instructions are in machine code, known before a launch: a record for each one that has a handler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from kernels.engines.emulator.flags import STRONG, may_acquire, orders_some_threads
from kernels.engines.emulator.instructions.accessor import operands_of, space_of
from kernels.engines.emulator.native import lanes, operations
from kernels.engines.emulator.native.accesses import Access
from kernels.engines.emulator.native.emit import Emit, text
from kernels.engines.emulator.native.library import library
from kernels.engines.emulator.native.record import (
    BARRIER,
    BRANCH,
    END,
    EXECUTED,
    FLIP,
    FROM,
    GUARD,
    HANDLER,
    KIND,
    LANES,
    LEADER,
    OPERANDS,
    RECORD,
    ROOM,
    STOP,
    TARGET,
    VALUE,
)
from kernels.engines.emulator.patterns import guesses
from kernels.engines.emulator.ptx.arrays import LARGEST, arrays_of
from kernels.engines.emulator.ptx.flow import flow_of, is_clock
from kernels.engines.emulator.ptx.kernel import Instruction, Kernel, Operand, type_bytes
from kernels.engines.emulator.ptx.merged_loads import merged_of
from kernels.engines.emulator.ptx.registers import written

# Opcodes that never write to memory; and spaces of accesses that write elsewhere than in shared memory.
_NEVER_WRITE = {
    *operations.BASES,
    "ld",
    "ldu",
    "cvta",
    "bar",
    "barrier",
    "bra",
    "ret",
    "exit",
    "shfl",
    "vote",
    "membar",
    "fence",
    "prmt",
    "lop3",
    "shf",
    "bfe",
    "bfi",
    "popc",
    "clz",
    "ex2",
    "lg2",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "activemask",
    "isspacep",
    "mma",
    "trap",
}
_OTHER_SPACES = {"global", "local", "param"}
SPACES = {"global": "global", "const": "global", "shared": "shared", "local": "local"}


@dataclass(frozen=True)
class Setting:
    """What a plan depends on besides the kernel: whether accesses are counted, the spaces that NumPy accesses, those to which it
    writes, where the block's arrays start in shared memory, the spaces with the bytes of a word by which races are looked for, and
    whether NumPy has to execute all barriers."""

    counted: bool
    numpy_accesses: frozenset[str]
    numpy_writes: frozenset[str]
    arrays: tuple[tuple[str, int], ...]
    races: frozenset[tuple[str, int]] = frozenset()
    numpy_barriers: bool = False


@dataclass(frozen=True)
class Constant:
    """Operand n of an instruction that is no register: a value, or `parameter` bytes into a parameter."""

    pc: int
    n: int
    operand: Operand
    type_: str
    parameter: int | None = None


@dataclass
class Plan:
    """`records`: a row an instruction and one for the code's end, without addresses of registers and memory. `registers`: (instruction,
    place in the record, number of the register). `floats`: instructions that may make NaN. `barriers`: those that a block passes here
    when all its threads are there. `stop`: as of Flow, for what NumPy executes."""

    records: np.ndarray
    registers: np.ndarray
    constants: list[Constant]
    accesses: dict[int, Access]
    flops: dict[int, int]
    floats: list[int]
    written: list[list[int]]
    stop: list[int]
    handled: frozenset[int]
    barriers: list[int]


class _NoHandler(Exception):
    """NumPy executes the instruction."""


@lru_cache(maxsize=64)  # a kernel is launched more often than it is parsed
def plan_of(kernel: Kernel, setting: Setting) -> Plan:
    return _Planner(kernel, setting).plan()


class _Planner:
    def __init__(self, kernel: Kernel, setting: Setting):
        self.kernel, self.setting, self.flow = kernel, setting, flow_of(kernel)
        self.index = {name: n for n, name in enumerate(kernel.registers)}
        self.merged = merged_of(kernel, setting.arrays) if setting.counted and setting.arrays else {}
        self.records = np.zeros((len(kernel.code) + 1, RECORD), np.int64)
        self.registers: list[tuple[int, int, int]] = []
        self.constants: list[Constant] = []
        self.accesses: dict[int, Access] = {}
        self.flops: dict[int, int] = {}
        self.floats: list[int] = []

    def plan(self) -> Plan:
        code, emits, names = self.kernel.code, {}, {}
        for pc, i in enumerate(code):
            ending = self.flow.endings.get(pc)
            if ending and ending != "lanes":
                continue
            before = len(self.registers), len(self.constants)
            try:
                names[pc], emit = self._between_lanes(pc, i) if ending else self._instruction(pc, i)
            except _NoHandler:
                del self.registers[before[0] :], self.constants[before[1] :]
                continue
            self._guard(pc, i)
            emits[names[pc]] = emit
        handlers = library()
        handlers.add({name: partial(text, name, emit) for name, emit in emits.items()})
        for pc, name in names.items():
            self.records[pc, HANDLER] = handlers.addresses[name]
        self._control(sorted(names))
        return Plan(
            self.records,
            np.array(self.registers, np.int64).reshape(-1, 3),
            self.constants,
            self.accesses,
            self.flops,
            self.floats,
            [[self.index[name] for name in written(i) if name in self.index] for i in code],
            self._stops(),
            frozenset(names),
            np.flatnonzero(self.records[:, KIND] == BARRIER).tolist(),
        )

    # -- instructions -----------------------------------------------------------------------------------
    def _instruction(self, pc: int, i: Instruction) -> tuple[str, Emit]:
        """Returns the name of an instruction's handler and what emits it."""
        if i.parts[0] in ("ld", "st"):
            return self._access(pc, i)
        op = operations.operation(tuple(i.parts))
        if op is None or len(op.types) != len(i.operands):
            raise _NoHandler
        for n, (o, type_) in enumerate(zip(i.operands, op.types, strict=True)):
            self._operand(pc, n, o, type_)
        if op.flops:
            self.flops[pc] = op.flops
        if op.makes_nan:
            self.floats.append(pc)
        return op.name, op.emit

    def _between_lanes(self, pc: int, i: Instruction) -> tuple[str, Emit]:
        """Of an instruction of all lanes. With races, NumPy knows what a barrier of the lanes orders."""
        op = lanes.operation(i)
        if op is None or i.guard is not None or (i.parts[0] == "bar" and self.setting.races):
            raise _NoHandler
        if self.setting.races and self.may_acquire:  # what one lane has acquired the others know then
            raise _NoHandler
        first, *others = i.operands if op.types else (None,)
        results = first.elements if first is not None else ()
        for n, o in enumerate((*results[:1], *others[: len(op.types) - len(results)], *results[1:])):
            self._operand(pc, n, o, op.types[n])
        return op.name, op.emit

    def _guard(self, pc: int, i: Instruction) -> None:
        if i.guard is not None:
            self.registers.append((pc, GUARD, self.index[i.guard[0]]))
            self.records[pc, FLIP] = -int(i.guard[1])

    def _operand(self, pc: int, n: int, o: Operand, type_: str) -> None:
        if o.kind in ("reg", "symbol") and o.name in self.index:
            width = type_bytes(type_)
            if type_bytes(self.kernel.registers[o.name]) != width:
                raise _NoHandler
            self.registers.append((pc, OPERANDS + 2 * n, self.index[o.name]))
            self.records[pc, OPERANDS + 2 * n + 1] = LANES * width
        elif n == 0 or o.kind not in ("imm", "special", "symbol") or is_clock(o):
            raise _NoHandler
        else:
            self.constants.append(Constant(pc, n, o, type_))

    def _access(self, pc: int, i: Instruction) -> tuple[str, Emit]:
        write, type_ = i.parts[0] == "st", i.parts[-1]
        first, second = operands_of(i)
        memory, values = (first, second) if write else (second, first)
        if type_ not in operations.TYPES or type_ == "pred" or memory.kind != "mem":
            raise _NoHandler
        if space_of(i) == "param" and not write and memory.root.kind == "symbol":
            return self._parameter(pc, i, memory, type_)
        access = self._accessed(pc, i, memory, values.elements, type_)
        if access.space == "shared":
            self._array(pc, memory, access)
        address = "u32" if access.short else "u64"
        if memory.root.name in self.index:
            self._operand(pc, 0, memory.root, address)
        else:
            self.constants.append(Constant(pc, 0, memory.root, address))
        for n, o in enumerate(values.elements, 1):
            if not write and o.kind not in ("reg", "symbol"):
                raise _NoHandler
            self._operand(pc, n, o, f"b{8 * access.register}")
        self.records[pc, VALUE] = memory.offset
        self.accesses[pc] = access
        return access.name, access.emit

    def _array(self, pc: int, memory: Operand, access: Access) -> None:
        first, *others = arrays_of(self.kernel, self.setting.arrays).ranges(memory) or [(0, LARGEST)]
        if others:  # with others between them
            raise _NoHandler
        self.records[pc, [FROM, ROOM]] = first[0], first[1] - first[0] - access.bytes

    def _accessed(self, pc: int, i: Instruction, memory: Operand, values: Sequence[Operand], type_: str) -> Access:
        space, write, width = SPACES.get(space_of(i), ""), i.parts[0] == "st", type_bytes(type_)
        numpy_has = self.setting.numpy_accesses | (self.setting.numpy_writes if write else frozenset())
        if not space or space in numpy_has or memory.root.kind not in ("reg", "symbol"):
            raise _NoHandler
        address = type_bytes(self.kernel.registers.get(memory.root.name, "u64" if space == "global" else "u32"))
        wide = {
            type_bytes(self.kernel.registers[o.name]) if o.kind in ("reg", "symbol") and o.name in self.index else width
            for o in values
        }
        if address not in (4, 8) or len(wide) != 1 or min(wide) < width:
            raise _NoHandler
        counted = width * len(values) if self.setting.counted and space_of(i) != "const" else 0
        if counted and space == "shared" and not write:
            counted = self.merged.get(pc, counted)
        unit = dict(self.setting.races).get(space, 0)
        if unit and (STRONG & set(i.parts) or pc in self.guesses):
            raise _NoHandler
        if unit and write and space in self.spaces_read_strongly:
            raise _NoHandler
        noted = bool(unit) and (space == "global" or pc in self.beside_writes)
        if noted and not write and self.orders_some_threads:
            raise _NoHandler
        constant = bool(unit) and "nc" in i.parts
        signed = type_[0] == "s"
        return Access(
            write, space, width, len(values), address == 4, counted, wide.pop(), signed, unit, noted, constant
        )

    @cached_property
    def may_acquire(self) -> bool:
        return may_acquire(self.kernel.code)

    @cached_property
    def orders_some_threads(self) -> bool:
        return orders_some_threads(self.kernel.code)

    @cached_property
    def spaces_read_strongly(self) -> set[str]:
        """The spaces of loads that are atomic or volatile, which NumPy compares with writes."""
        strong = [space_of(i) for i in self.kernel.code if i.parts[0] == "ld" and STRONG & set(i.parts)]
        return {*SPACES} if "generic" in strong else {*strong}

    @cached_property
    def guesses(self) -> set[int]:
        return guesses(self.kernel.code)

    @cached_property
    def barriers_of_all(self) -> set[int]:
        """The barriers, if each of them is one of all threads of the block."""
        code = self.kernel.code
        barriers = {pc for pc, kind in self.flow.endings.items() if kind == "barrier"}
        simple = (
            len(code[pc].operands) == 1 and not code[pc].guard and "arrive" not in code[pc].parts for pc in barriers
        )
        return barriers if all(simple) else set()

    def _barriers(self) -> list[int]:
        """Returns the barriers that a block can pass here. With races, NumPy knows what a fence before a barrier orders."""
        code, unknown = self.kernel.code, {"membar", "fence", "acquire", "release", "acq_rel"}
        if self.setting.numpy_barriers or (self.setting.races and any(unknown & set(i.parts) for i in code)):
            return []
        constant_ids = all(code[pc].operands[0].kind == "imm" for pc in self.barriers_of_all)
        return sorted(self.barriers_of_all - self.flow.detours) if constant_ids else []

    @cached_property
    def beside_writes(self) -> set[int]:
        """The instructions that a thread may execute while another one of its block writes to shared memory: no barrier of all threads
        is between. The threads of a block leave one barrier together (else Native.barrier_diverged)."""
        code, endings = self.kernel.code, self.flow.endings
        barriers = self.barriers_of_all
        if len({str(code[pc].operands[0]) for pc in barriers}) > 1:
            barriers = set()
        writing = {
            pc for pc, i in enumerate(code) if i.parts[0] not in _NEVER_WRITE and not _OTHER_SPACES & set(i.parts)
        }
        found: set[int] = set()
        for start in (self.kernel.start, *(pc + 1 for pc in barriers)):
            phase, todo = {start}, [start]
            while todo:
                pc = todo.pop()
                if pc >= len(code) or pc in barriers:
                    continue
                falls = endings.get(pc) not in ("branch", "table", "return") or code[pc].guard is not None
                new = {*code[pc].targets, *((pc + 1,) if falls else ())} - phase
                phase |= new
                todo += new
            if phase & writing:
                found |= phase
        return found

    def _parameter(self, pc: int, i: Instruction, memory: Operand, type_: str) -> tuple[str, Emit]:
        if i.elements > 1 or all(p.name != memory.root.name for p in self.kernel.params):
            raise _NoHandler
        op = operations.operation(("mov", f"b{8 * type_bytes(type_)}"))
        if op is None:
            raise _NoHandler
        self._operand(pc, 0, i.operands[0], op.types[0])
        self.constants.append(Constant(pc, 1, memory.root, type_, memory.offset + memory.root.offset))
        return op.name, op.emit

    # -- control ------------------------------------------------------------------------------------------
    def _control(self, handled: list[int]) -> None:
        code, records = self.kernel.code, self.records
        records[:, KIND] = STOP
        records[handled, KIND] = EXECUTED
        joining = (pc for pc in handled if pc in self.flow.leaders or pc in self.flow.endings)
        records[list(joining), KIND] = LEADER
        stopping = self.flow.detours  # the scheduler looks whether others wait for who comes here
        for pc, kind in self.flow.endings.items():
            i = code[pc]
            if pc in stopping:
                continue
            if kind == "branch":
                self._guard(pc, i)
                records[pc, KIND], records[pc, TARGET] = BRANCH, i.targets[0]
            elif kind == "return" and i.guard is None:
                records[pc, KIND] = END
        records[[pc for pc in handled if pc in stopping], KIND] = STOP
        records[self._barriers(), KIND] = BARRIER

    def _stops(self) -> list[int]:
        """Returns the end of the code that NumPy executes from an instruction on."""
        stop, kinds = list(self.flow.stop), self.records[:, KIND]
        for pc in range(len(self.kernel.code) - 1, -1, -1):
            if stop[pc] > pc:
                stop[pc] = pc + 1 if kinds[pc + 1] != STOP or pc + 1 == stop[pc] else stop[pc + 1]
        return stop
