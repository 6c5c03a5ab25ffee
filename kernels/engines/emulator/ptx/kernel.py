"""A kernel as parsed from PTX: its registers, variables, functions, and instructions with their CUDA lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kernels.model.program import RuleError

# Shared memory that cooperative groups address through this special register, and its bytes in their header.
RESERVED, RESERVED_BYTES = "reserved_smem_offset_1", 288
_TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16, "pred": 1, "f16x2": 4, "bf16x2": 4}


class PtxError(RuleError):
    """PTX that this emulator does not support; the message names its line."""


@dataclass(frozen=True)
class Operand:
    """`kind`: reg, not (a negated predicate), imm, special, symbol, mem, vector, sink, part (a register's bytes:
    b0 to b3, h0, h1). The value of "mem" is the coordinates after the address, [map, {x, y}]."""

    kind: str
    # reg, not: name; imm: int bits or float; symbol: name; vector: tuple of Operands
    value: str | int | float | tuple[Operand, ...] | None = None
    offset: int = 0  # mem, symbol: bytes added to the address
    base: Operand | None = None  # mem: register or symbol; part: register

    @property
    def name(self) -> str:
        """The name of a register, a symbol or a special register. KeyError: the operand is of another kind."""
        if not isinstance(self.value, str):
            raise KeyError(self.kind)
        return self.value

    @property
    def number(self) -> int:
        """The value of an imm as a whole number. KeyError: the operand is of another kind."""
        if not isinstance(self.value, (int, float)):
            raise KeyError(self.kind)
        return int(self.value)

    @property
    def inner(self) -> tuple[Operand, ...]:
        """The elements of a vector, the coordinates after an address; () of others."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def elements(self) -> tuple[Operand, ...]:
        """The elements of a vector; of others itself."""
        return self.inner if self.kind == "vector" else (self,)

    @property
    def root(self) -> Operand:
        """The register or symbol of an address, the register of a part. KeyError: the operand is of another kind."""
        if self.base is None:
            raise KeyError(self.kind)
        return self.base


@dataclass(frozen=True)
class Line:
    """A place in the CUDA source: file and 1-based line."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass
class Instruction:
    opcode: str  # "ld.global.nc.v4.f32"
    operands: tuple[Operand, ...]
    guard: tuple[str, bool] | None  # predicate register, True if negated
    line: Line | None  # of the outermost call, in the user's code
    inlined: Line | None = None  # in the function that was inlined there, if any
    targets: tuple[int, ...] = ()  # instructions to which a branch, a call or a return may jump
    # File, line and column in the source, after those of the calls around it: the same in all copies that the compiler made.
    place: tuple[tuple[str, ...], ...] = ()
    statement: int = 0  # of its line, in a build for watching
    inlined_statement: int = 0  # of the line in the function

    @cached_property
    def parts(self) -> list[str]:
        return self.opcode.split(".")

    @property
    def elements(self) -> int:
        """The elements of a vector that it loads or stores, 1 for a scalar."""
        return next((int(p[1:]) for p in self.parts if p in ("v2", "v4", "v8")), 1)


@dataclass
class Variable:
    """A .shared, .local, .const or .global declaration, or a parameter."""

    name: str
    space: str
    align: int
    size: int  # bytes; 0 for extern shared (dynamic)
    data: bytes = b""  # initial content
    dtype: str = ""  # PTX type of a parameter
    addresses: tuple[Address, ...] = ()  # zero in `data`: known once the module is in memory


@dataclass(frozen=True)
class Address:
    """A part of a variable's initial content: the address of symbol + offset, without its low `shift` bits."""

    at: int  # byte in the variable
    width: int  # bytes
    symbol: str
    offset: int = 0
    shift: int = 0


@dataclass
class Function:
    """A function with call frames: its instructions start .. stop-1 and what a frame contains."""

    name: str
    start: int
    recursive: bool  # one thread may be in it twice
    results: list[Variable]
    params: list[Variable]
    variables: list[Variable] = field(default_factory=list)  # of a frame, including `results` and `params`
    stop: int = 0


@dataclass(eq=False)
class Body:
    """A copy of a function's body in a kernel's code, or the kernel's own: instructions start .. stop-1. `around`: the body that calls it,
    at `line`. `labels`: instructions. `names`: those that registers and variables have in the kernel."""

    function: str
    around: Body | None
    line: Line | None
    start: int
    names: Mapping[str, str]
    labels: dict[str, int] = field(default_factory=dict)
    stop: int = 0


@dataclass(eq=False)
class Kernel:
    name: str
    params: list[Variable]
    registers: dict[str, str]  # name -> PTX type
    variables: list[Variable]
    code: list[Instruction]  # functions with frames, then the kernel itself
    start: int = 0  # index of the kernel's first instruction
    functions: dict[str, Function] = field(default_factory=dict)  # those with frames
    names: tuple[str, ...] = ()  # of all functions of the module, in its order
    cluster: tuple[int, int, int] = (1, 1, 1)  # blocks of a cluster along x, y, z
    max_threads: int = 0  # of a block, by __launch_bounds__; 0 without a bound
    required_block: tuple[int, int, int] | None = None  # threads of a block along x, y, z, by .reqntid
    bodies: list[Body] = field(default_factory=list)  # its own, and those of functions without frames
    debug: bool = False  # compiled with -G: variables may be copied before they have a value

    @cached_property
    def symbols(self) -> set[str]:
        """The symbols in instructions, and those in the initial content of these symbols' variables."""
        todo, found = [o for i in self.code for o in i.operands], set()
        while todo:
            o = todo.pop()
            todo += (*o.inner, o.root) if o.kind == "mem" else o.inner
            if o.kind == "symbol":
                found.add(o.name)
        contained = {v.name: {a.symbol for a in v.addresses} for v in self.variables if v.addresses}
        while new := {name for v in found & contained.keys() for name in contained[v]} - found:
            found |= new
        return found


def type_bytes(type_: str) -> int:
    """Returns the bytes of a PTX type: "f32" -> 4."""
    return _TYPE_BYTES.get(type_) or _TYPE_BYTES[re.sub(r"\D", "", type_)]
