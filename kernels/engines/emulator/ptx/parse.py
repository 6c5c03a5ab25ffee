"""PTX text to a Kernel: registers, parameters, memory declarations, instructions with their CUDA line.

Open to what `-G` emits (functions, generic addresses): `.func` bodies are parsed like entries. A function is read
in place of each call of it; one that is recursive or called by pointer is read once, before the kernel's own code.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from kernels.engines.emulator.ptx.callgraph import framed
from kernels.model.program import RuleError


class PtxError(RuleError):
    """PTX this emulator does not read; names the line of the PTX."""


@dataclass(frozen=True)
class Operand:
    """kind: reg, imm, special, label, symbol, mem, vector, sink, part (a register's bytes: b0 to b3, h0, h1)."""

    kind: str
    value: object = None  # reg: name; imm: int bits or float; symbol, label: name; vector: tuple of Operands
    offset: int = 0  # mem, symbol: bytes on top
    base: Operand | None = None  # mem: register or symbol; part: register


@dataclass(frozen=True)
class Line:
    """A place in the CUDA source: file and 1-based line of the outermost user code."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass
class Instruction:
    opcode: str  # "ld.global.nc.v4.f32"
    operands: tuple[Operand, ...]
    guard: tuple[str, bool] | None  # predicate register, True where negated
    line: Line | None  # where a reader finds it: the outermost call
    inlined: Line | None = None  # where it was written, if inlined from elsewhere
    targets: tuple[int, ...] = ()  # of a branch, a call or a return: instructions it may lead to

    @cached_property
    def parts(self) -> list[str]:
        return self.opcode.split(".")


@dataclass
class Variable:
    """A .shared, .local, .const or .global declaration, or a parameter."""

    name: str
    space: str
    align: int
    size: int  # bytes; 0 for extern shared (dynamic)
    data: bytes = b""
    dtype: str = ""  # PTX type of a parameter
    addresses: tuple[Address, ...] = ()  # zero in `data`: known when the module is placed


@dataclass(frozen=True)
class Address:
    """A part of a variable's first content: bits of the address of symbol + offset."""

    at: int  # byte in the variable
    width: int  # bytes
    symbol: str
    offset: int = 0
    shift: int = 0  # how many low bits of the address are left out


@dataclass
class Function:
    """A function with call frames: where its code begins and what a frame holds."""

    name: str
    start: int  # index of its first instruction
    recursive: bool  # one thread may be in it twice
    returned: list[Variable]
    params: list[Variable]
    variables: list[Variable] = field(default_factory=list)  # of a frame, `returned` and `params` among them
    stop: int = 0  # index behind its last instruction


@dataclass(eq=False)
class Kernel:
    name: str
    params: list[Variable]
    registers: dict[str, str]  # name -> PTX type
    variables: list[Variable]
    code: list[Instruction]  # functions with frames, then the kernel's own
    start: int = 0  # index of the kernel's first instruction
    functions: dict[str, Function] = field(default_factory=dict)  # those with frames
    names: tuple[str, ...] = ()  # of all functions of the module, in its order

    @cached_property
    def symbols(self) -> set[str]:
        """The names that instructions mention, and those that the first content of such variables names."""
        todo, found = [o for i in self.code for o in i.operands], set()
        while todo:
            o = todo.pop()
            todo += o.value if o.kind == "vector" else [o.base] if o.base else []
            if o.kind == "symbol":
                found.add(o.value)
        pointed = {v.name: {a.symbol for a in v.addresses} for v in self.variables if v.addresses}
        while new := {name for v in found & pointed.keys() for name in pointed[v]} - found:
            found |= new
        return found


_TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16, "pred": 1, "f16x2": 4, "bf16x2": 4}


def type_bytes(type_: str) -> int:
    """Bytes of a PTX type: "f32" -> 4."""
    return _TYPE_BYTES.get(type_) or _TYPE_BYTES[re.sub(r"\D", "", type_)]


_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\b")
_DECLARE = re.compile(
    r"^\s*(?:\.(?:extern|visible|weak)\s+)?\.(shared|local|const|global)\s+(?:\.attribute\(\.managed\)\s+)?(?:\.align\s+(\d+)\s+)?"
    r"\.(\w+)\s+([\w$]+)((?:\[\d*\])*)\s*(?:=\s*(.*))?;\s*$"
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.ptr(?:\s+\.\w+)*(?:\s+\.align\s+\d+)?)?\s+([\w$]+)(?:\[(\d+)\])?"
)
_REG = re.compile(r"^\s*\.reg\s*\.(\w+)\s+(.+);\s*$")
_LABEL = re.compile(r"^\s*([\w$]+)\s*:\s*$")
_LABEL_AND_MORE = re.compile(r"^([\w$]+\s*:)(?!:)\s*(\S.*)$")
_INSTRUCTION = re.compile(r"^\s*(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*?);\s*$")
_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+\d+)?"
)
_HEADER = re.compile(r".*?\.(?:entry|func)\s*(\([^)]*\))?\s*([\w$]+)\s*(\(.*\))?", re.DOTALL)
_TABLE = re.compile(r"^\s*(?:([\w$]+):)?\s*\.branchtargets\s*(.*)$")
_CALL = re.compile(
    r"^(?:\(([^)]*)\)\s*,)?\s*([%\w$]+)\s*(?:,\s*\(([^)]*)\))?\s*(?:,\s*[\w$]+)?\s*$", re.DOTALL
)
# One value among a variable's first: a number, or a symbol's address, "generic(x)+8", "0xFF00(x)": its second byte.
_INITIAL = re.compile(
    r"^(?:(0[xX][fF0]+)\s*\()?\s*(generic\s*\()?\s*([A-Za-z_$][\w$.]*)\s*\)?\s*([+-]\s*\d+)?\s*\)?$"
)
# Shared memory that cooperative groups find by this register: its bytes, as their header says.
RESERVED, RESERVED_BYTES = "reserved_smem_offset_1", 288
_TEXTURES = {"tex", "tld4", "txq", "istypep", "suld", "sust", "sured", "suq"}
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')


@lru_cache(maxsize=16)  # a kernel is launched more often than it is read
def parse(ptx: str, entry: str) -> Kernel:
    """The kernel `entry` of a PTX module, module-level variables included; not to be changed, the next launch
    gets the same. PtxError where it is missing."""
    text = re.sub(r"/\*.*?\*/", "", ptx, flags=re.DOTALL)
    lines = _one_statement_a_line([line.split("//")[0] for line in text.split("\n")])
    files = {int(m[1]): m[2].replace("\\", "/").rpartition("/")[2] for m in map(_FILE.match, lines) if m}
    shared_by_all = []
    functions: dict[str, _Function] = {}
    i = 0
    while i < len(lines):
        if _ENTRY.match(lines[i]):
            j = i
            while "{" not in lines[j] and ";" not in lines[j]:
                j += 1
            header = " ".join(lines[i : j + 1])
            end = _closing(lines, j) if "{" in lines[j] else j
            returned, name, params = _HEADER.match(header).groups()
            if "{" in lines[j]:
                functions[name] = _Function(_params(returned or ""), _params(params or ""), (j + 1, end))
            i = end
        elif m := _DECLARE.match(lines[i]):
            shared_by_all.append(_variable(m))
        i += 1
    if entry not in functions:
        raise PtxError(f"no kernel {entry!r} in the PTX; there are: {', '.join(functions) or 'none'}")
    kernel = Kernel(entry, functions[entry].params, {}, shared_by_all, [], names=tuple(functions))
    _Bodies(kernel, lines, files, functions).read(_with_frames(kernel, lines, functions))
    return kernel


@dataclass(frozen=True)
class _Function:
    """An entry or a function: what it returns and takes, and the lines of its body."""

    returned: list[Variable]
    params: list[Variable]
    body: tuple[int, int]


def _with_frames(kernel: Kernel, lines: Sequence[str], functions: Mapping[str, _Function]) -> dict[str, bool]:
    """Functions that need call frames, callees first, each with whether it is recursive."""
    bodies = {name: "\n".join(lines[slice(*f.body)]) for name, f in functions.items()}
    if "call" not in bodies[kernel.name]:
        return {}
    initial = {v.name: [a.symbol for a in v.addresses] for v in kernel.variables}
    return framed(kernel.name, bodies, initial)


def _closing(lines: list[str], start: int) -> int:
    """The line that closes the body opened at or after `start`."""
    depth = 0
    for i in range(start, len(lines)):
        stripped = lines[i].strip()
        depth += stripped == "{" or (stripped.endswith("{") and "}" not in stripped)
        if stripped == "}":
            depth -= 1
            if depth == 0:
                return i
    raise PtxError(f"PTX line {start + 1}: a body without its end")


def _one_statement_a_line(lines: list[str]) -> list[str]:
    """Inline assembly comes as "{add.f16 a,b,c;}", several statements on a line or one on several."""
    out: list[str] = []
    unfinished = False  # an instruction goes on: braces are a vector's, not a scope's
    for line in lines:
        text = line.strip()
        if not text:
            out.append("")  # keeps the count of lines close to the text's
        while text:
            if not unfinished and text[0] in "{}":
                out.append(text[0])
                text = text[1:].strip()
                continue
            label = None if unfinished else _LABEL_AND_MORE.match(text)
            if label:
                out.append(label[1])
                text = label[2]
                continue
            statement, end, text = text.partition(";")
            out.append(statement + end)
            unfinished = not end and (unfinished or bool(re.match(r"[a-z@]", statement)))
            if unfinished and statement.endswith(":"):
                unfinished = False
            text = text.strip()
    return out


def _params(header: str) -> list[Variable]:
    out = []
    for m in _PARAM.finditer(header):
        align, type_, name, count = m.groups()
        size = type_bytes(type_) * int(count or 1)
        out.append(Variable(name, "param", int(align or min(size, 8)), size, dtype=type_))
    return out


def _variable(m: re.Match) -> Variable:
    space, align, type_, name, dims, initial = m.groups()
    width, count = type_bytes(type_), 1
    for extent in re.findall(r"\[(\d*)\]", dims or ""):
        count *= int(extent or 0)
    data, addresses = _initial(initial or "", width)
    return Variable(name, space, int(align or width), width * count, data, addresses=addresses)


def _initial(text: str, width: int) -> tuple[bytes, tuple[Address, ...]]:
    """What a variable's elements of `width` bytes hold at first: numbers, and the addresses among them."""
    data, addresses = bytearray(), []
    for value in re.split(r"[\s,]+", re.sub(r"[{}]", " ", text).strip()):
        if m := _INITIAL.match(value):
            mask, _, symbol, offset = m.groups()
            shift = 0 if mask is None else _trailing_zeros(int(mask, 16))
            addresses.append(Address(len(data), width, symbol, int(offset or 0), shift))
            data += bytes(width)
        elif value[:2].lower() in ("0f", "0d"):
            data += _number(value)[1]
        elif re.match(r"-?\d", value):
            data += (int(value.rstrip("U"), 0) & (1 << 8 * width) - 1).to_bytes(width, "little")
        elif value:
            raise PtxError(f"{value} among a variable's first values is not understood")
    return bytes(data), tuple(addresses)


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1


class _Bodies:
    """Reads the body of a kernel into instructions; functions it calls are read in place of the call."""

    def __init__(
        self, kernel: Kernel, lines: list[str], files: dict[int, str], functions: dict[str, _Function]
    ):
        self.kernel, self.lines, self.files, self.functions = kernel, lines, files, functions
        self.line: Line | None = None
        self.inlined: Line | None = None
        self.calls: list[tuple[str, Line | None]] = []  # functions being read, and where they are called
        self.names: list[dict[str, str]] = [{}]  # of registers and parameters, innermost scope last
        self.scopes: list[int] = [0]
        self.made = 0  # scopes so far
        self.labels: dict[tuple[int, str], int] = {}
        self.tables: dict[tuple[int, str], tuple[str, ...]] = {}
        self.branches: list[tuple[int, str, tuple[int, ...]]] = []  # instruction, label or table, scopes
        self.function: Function | None = None  # with call frames, being read; None: the kernel
        self.with_frames: Mapping[str, bool] = {}
        self.direct_calls: list[tuple[int, str]] = []  # instruction, function with frames

    def read(self, with_frames: Mapping[str, bool]) -> None:
        """Read the functions that need frames, then the kernel; `with_frames`: whether each is recursive."""
        kernel = self.kernel
        self.with_frames = with_frames
        for name, recursive in with_frames.items():
            self._read_function(name, recursive)
        kernel.start = len(kernel.code)
        self._body(*self.functions[kernel.name].body)
        for at, name, scopes in self.branches:
            table = next((self.tables[s, name] for s in scopes if (s, name) in self.tables), (name,))
            kernel.code[at].targets = tuple(
                next(self.labels[s, target] for s in scopes if (s, target) in self.labels) for target in table
            )
        self._link()

    def _link(self) -> None:
        """Set where calls of functions with frames lead, one by pointer to any of them, and where these return."""
        code, functions = self.kernel.code, self.kernel.functions.values()
        direct = dict(self.direct_calls)
        back: dict[int, list[int]] = {f.start: [] for f in functions}
        for pc, i in enumerate(code if back else ()):
            if i.parts[0] == "call":
                called = self.kernel.functions[direct[pc]] if pc in direct else None
                i.targets = tuple(back) if called is None else (called.start,)
                for start in i.targets:
                    back[start].append(pc + 1)
        for f in functions:
            for i in code[f.start : f.stop]:
                if i.parts[0] == "return":
                    i.targets = tuple(back[f.start])

    def _read_function(self, name: str, recursive: bool) -> None:
        kernel, f, names, scopes = self.kernel, self.functions[name], self.names, self.scopes
        self.made += 1
        self.names, self.scopes = [{}], [self.made]
        returned, params = (
            [replace(v, name=self._unique(v.name), space="local") for v in group]
            for group in (f.returned, f.params)
        )
        self.function = Function(name, len(kernel.code), recursive, returned, params, [*returned, *params])
        self._body(*f.body)
        kernel.code.append(Instruction("return", (), None, self.line))
        self.function.stop = len(kernel.code)
        kernel.functions[name] = self.function
        self.names, self.scopes = names, scopes
        self.function = self.line = self.inlined = None

    def _body(self, i: int, end: int) -> None:
        kernel, lines = self.kernel, self.lines
        pending_table = ""
        while i < end:
            text = lines[i]
            stripped = text.strip()
            if not stripped:
                pass
            elif stripped == "{":
                self._open()
            elif stripped == "}":
                self._close()
            elif m := _LOC.match(text):
                self._locate(*m.groups())
            elif m := _REG.match(text):
                self._registers(m[1], m[2])
            elif m := _DECLARE.match(text):
                self._declare(_variable(m))
            elif m := _TABLE.match(text):
                joined = m[2]
                while ";" not in joined:
                    i += 1
                    joined += lines[i]
                targets = tuple(t.strip() for t in joined.rstrip("; \t").split(","))
                self.tables[self.scopes[-1], m[1] or pending_table] = targets
            elif m := _LABEL.match(text):
                self.labels[self.scopes[-1], m[1]] = len(kernel.code)
                pending_table = m[1]
            elif ".callprototype" in stripped or ".calltargets" in stripped:
                while ";" not in lines[i]:
                    i += 1
            elif stripped.startswith(".param"):
                self._own_param(text)
            elif stripped.startswith("."):
                pass  # .pragma and other hints
            else:
                first = i
                while ";" not in text:
                    i += 1
                    text += " " + lines[i]
                self._instruction(text, first)
            i += 1

    # -- scopes ----------------------------------------------------------------------------------
    def _open(self) -> None:
        self.made += 1
        self.scopes.append(self.made)
        self.names.append({})

    def _close(self) -> None:
        self.scopes.pop()
        self.names.pop()

    def _renamed(self, name: str) -> str:
        return next((scope[name] for scope in reversed(self.names) if name in scope), name)

    def _operand(self, o: Operand) -> Operand:
        """With the names of its scope."""
        if o.base is not None:
            return replace(o, base=self._operand(o.base))
        if o.kind == "vector":
            return replace(o, value=tuple(self._operand(part) for part in o.value))
        return replace(o, value=self._renamed(o.value)) if o.kind in ("reg", "not", "symbol") else o

    def _registers(self, type_: str, names: str) -> None:
        for name in names.split(","):
            name = name.strip()
            if m := re.match(r"^(%\w+?)<(\d+)>$", name):
                for n in range(int(m[2])):
                    self._register(f"{m[1]}{n}", type_)
            else:
                self._register(name, type_)

    def _register(self, name: str, type_: str) -> None:
        own = self._unique(name)
        self.kernel.registers[own] = type_

    def _unique(self, name: str) -> str:
        """The kernel's own names stay; those of an inner scope or a function called must not meet them."""
        own = name if self.scopes == [0] else f"{name}.{self.scopes[-1]}"
        self.names[-1][name] = own
        return own

    def _own_param(self, text: str) -> None:
        """What a call hands over lies in local memory here."""
        variables = self.kernel.variables if self.function is None else self.function.variables
        for v in _params(text):
            variables.append(replace(v, name=self._unique(v.name), space="local"))

    def _declare(self, v: Variable) -> None:
        if self.function is not None and v.space == "local":
            self.function.variables.append(replace(v, name=self._unique(v.name)))
        elif all(v.name != known.name for known in self.kernel.variables):  # a function may be called twice
            self.kernel.variables.append(v)

    def _locate(self, file: str, number: str, at_file: str | None, at_number: str | None) -> None:
        if not int(number):
            return  # line 0: the compiler's own; the line before stays
        here = Line(self.files.get(int(file), f"file {file}"), int(number))
        if self.calls:
            self.inlined = here
        elif at_file:
            outer = Line(self.files.get(int(at_file), f"file {at_file}"), int(at_number))
            self.line, self.inlined = outer, here
        else:
            self.line, self.inlined = here, None

    # -- instructions ----------------------------------------------------------------------------
    def _instruction(self, text: str, at: int) -> None:
        kernel = self.kernel
        m = _INSTRUCTION.match(text)
        if not m:
            raise PtxError(f"PTX line {at + 1} is not understood: {text.strip()}")
        negated, guard, opcode, rest = m.groups()
        guard = (self._renamed(guard), bool(negated)) if guard else None
        base = opcode.partition(".")[0]
        if base in _TEXTURES:
            raise PtxError(
                f"{self.kernel.name}, {self.line}: textures and surfaces are not emulated: {opcode}"
            )
        if base == "call":
            self._call(rest, guard, at)
            return
        operands = tuple(self._operand(o) for o in _operands(rest))
        if Operand("special", RESERVED) in operands:
            self._declare(Variable(RESERVED, "shared", 16, RESERVED_BYTES))
        if base == "ret" and self.calls:
            self.branches.append((len(kernel.code), "return", (self.scopes[0],)))
            opcode, operands = "bra.uni", ()
        elif base == "ret" and self.function is not None:
            opcode = "return"  # to the caller; ret ends a thread
        elif base in ("bra", "brx"):
            name = str(operands[base == "brx"].value)
            self.branches.append((len(kernel.code), name, tuple(reversed(self.scopes))))
        elif opcode.startswith(("ld.param", "st.param")) and (
            self.calls or self.function is not None or base == "st" or _is_own(operands)
        ):
            opcode = opcode.replace(".param", ".local", 1)
        kernel.code.append(Instruction(opcode, operands, guard, self.line, self.inlined))

    def _call(self, rest: str, guard: tuple[str, bool] | None, at: int) -> None:
        m = _CALL.match(rest)
        if not m:
            raise PtxError(f"PTX line {at + 1}: this call is not understood: {rest.strip()}")
        name = m[2]
        returned, given = (self._handed(m[1]), self._handed(m[3]))
        if name in self.functions and name not in self.with_frames:
            self._inline(name, returned + given, guard)
            return
        values = [
            Operand("vector", tuple(Operand("symbol", n) for n in names)) for names in (returned, given)
        ]
        if name.startswith("%"):
            opcode, values = "call", [*values, self._operand(operand(name))]
        elif name in self.with_frames:
            opcode = "call"
            self.direct_calls.append((len(self.kernel.code), name))
        else:
            opcode = f"extern.{name}"
        self.kernel.code.append(Instruction(opcode, tuple(values), guard, self.line, self.inlined))

    def _handed(self, names: str | None) -> list[str]:
        """Variables a call hands over or gets back, with the names of their scope."""
        handed = [n.strip() for n in (names or "").split(",") if n.strip()]
        for name in handed:
            if not re.match(r"[A-Za-z_$]", name):
                where = f"{self.kernel.name}, {self.line or 'unknown line'}"
                raise PtxError(
                    f"{where}: a call hands over {name}: only variables in .param space are emulated"
                )
        return [self._renamed(name) for name in handed]

    def _inline(self, name: str, handed: Sequence[str], guard: tuple[str, bool] | None) -> None:
        """The function's own instructions, with its parameters named as the caller's."""
        f = self.functions[name]
        own = [v.name for v in (*f.returned, *f.params)]
        names, scopes, inlined = self.names, self.scopes, self.inlined
        self.made += 1
        self.names, self.scopes = [dict(zip(own, handed, strict=True))], [self.made]
        self.calls.append((name, self.line))
        if guard is not None:  # a branch around it for the others
            self.branches.append((len(self.kernel.code), "return", (self.scopes[0],)))
            self.kernel.code.append(Instruction("bra", (), (guard[0], not guard[1]), self.line, inlined))
        self._body(*f.body)
        self.labels[self.scopes[0], "return"] = len(self.kernel.code)
        self.calls.pop()
        self.names, self.scopes, self.inlined = names, scopes, inlined


def _is_own(operands: tuple[Operand, ...]) -> bool:
    """A load of what a call gave back: its name carries its scope, a kernel's parameter's does not."""
    return any(o.kind == "mem" and o.base.kind == "symbol" and "." in str(o.base.value) for o in operands)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def _operands(text: str) -> tuple[Operand, ...]:
    return tuple(operand(part) for part in _split(text))


_SPECIAL = re.compile(
    r"^%(n?tid|n?ctaid|n?clusterid|cluster_n?ctaid|cluster_n?ctarank|is_explicit_cluster|laneid|n?warpid|n?smid|gridid"
    r"|lanemask_\w+|clock(64|_hi)?|globaltimer(_lo|_hi)?|envreg\d+|\w+_smem_\w+|pm\d+(_64)?|current_graph_exec)(\.[xyz])?$"
)


def operand(text: str) -> Operand:
    text = text.strip()
    if text.startswith("{"):
        return Operand("vector", tuple(operand(p) for p in _split(text[1:-1])))
    if text.startswith("["):
        return _memory(text[1:-1])
    if text == "_":
        return Operand("sink")
    if m := re.match(r"^(%?[\w$]+)\.([bh][0-3])$", text):
        return Operand("part", m[2], base=operand(m[1]))
    if m := re.match(r"^(%?[\w$]+)\|(%?[\w$]+)$", text):
        return Operand("vector", (operand(m[1]), operand(m[2])))
    if _SPECIAL.match(text):
        return Operand("special", text[1:])
    if text.startswith("!"):
        return Operand("not", text[1:])
    if text.startswith("%"):
        return Operand("reg", text)
    if text == "WARP_SZ":
        return Operand("imm", 32)
    if re.match(r"^(0[fFdD][0-9A-Fa-f]+|-?0[xX][0-9A-Fa-f]+U?|-?\d+U?|-?\d*\.\d+)$", text):
        return Operand("imm", _number(text)[0])
    if m := re.match(r"^([\w$.]+)\+(-?\d+)$", text):
        return Operand("symbol", m[1], int(m[2]))
    return Operand("symbol", text)


def _memory(text: str) -> Operand:
    m = re.match(r"^\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*$", text)
    if not m:
        raise PtxError(f"the address [{text}] is not understood")
    base = operand(m[1])
    return Operand("mem", None, int(m[2] or 0), base)


def _number(text: str) -> tuple[float | int, bytes]:
    if text[:2].lower() == "0f":
        raw = bytes.fromhex(text[2:])[::-1]
        return struct.unpack("<f", raw)[0], raw
    if text[:2].lower() == "0d":
        raw = bytes.fromhex(text[2:])[::-1]
        return struct.unpack("<d", raw)[0], raw
    if "." in text:
        return float(text), b""
    return int(text.rstrip("U"), 0), b""
