"""PTX text to a Kernel: registers, parameters, memory declarations, instructions with their CUDA line.

Open to what `-G` emits (functions, generic addresses): `.func` bodies are parsed like entries.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from kernels.program import RuleError


class PtxError(RuleError):
    """PTX this emulator does not read; names the line of the PTX."""


@dataclass(frozen=True)
class Operand:
    """kind: reg, imm, special, label, symbol, mem, vector, sink."""

    kind: str
    value: object = None  # reg: name; imm: int bits or float; symbol, label: name; vector: tuple of Operands
    offset: int = 0  # mem, symbol: bytes on top
    base: Operand | None = None  # mem: register or symbol


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
    targets: tuple[int, ...] = ()  # of a branch: index of the instruction

    @property
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


@dataclass
class Kernel:
    name: str
    params: list[Variable]
    registers: dict[str, str]  # name -> PTX type
    variables: list[Variable]
    code: list[Instruction]


_TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16, "pred": 1, "f16x2": 4, "bf16x2": 4}


def type_bytes(type_: str) -> int:
    """Bytes of a PTX type: "f32" -> 4."""
    return _TYPE_BYTES.get(type_) or _TYPE_BYTES[re.sub(r"\D", "", type_)]


_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\b")
_DECLARE = re.compile(
    r"^\s*(?:\.(?:extern|visible|weak)\s+)?\.(shared|local|const|global)\s+(?:\.align\s+(\d+)\s+)?"
    r"\.(\w+)\s+([\w$]+)((?:\[\d*\])*)\s*(?:=\s*(.*))?;\s*$"
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.ptr(?:\s+\.\w+)*(?:\s+\.align\s+\d+)?)?\s+([\w$]+)(?:\[(\d+)\])?"
)
_REG = re.compile(r"^\s*\.reg\s+\.(\w+)\s+(.+);\s*$")
_LABEL = re.compile(r"^\s*([\w$]+):\s*$")
_INSTRUCTION = re.compile(r"^\s*(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*?);\s*$")
_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+\d+)?"
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')


def parse(ptx: str, entry: str) -> Kernel:
    """The kernel `entry` of a PTX module, module-level variables included. PtxError where it is missing."""
    text = re.sub(r"/\*.*?\*/", "", ptx, flags=re.DOTALL)
    lines = _one_statement_a_line([line.split("//")[0] for line in text.split("\n")])
    files = {int(m[1]): m[2].replace("\\", "/").rpartition("/")[2] for m in map(_FILE.match, lines) if m}
    shared_by_all, body, params = [], None, []
    names = []
    i = 0
    while i < len(lines):
        if _ENTRY.match(lines[i]):
            j = i
            while "{" not in lines[j] and ";" not in lines[j]:
                j += 1
            header = " ".join(lines[i : j + 1])
            end = _closing(lines, j) if "{" in lines[j] else j
            name = _name_of(header)
            names.append(name)
            if name == entry and "{" in lines[j]:
                params = _params(header)
                body = (j, end)
            i = end
        elif m := _DECLARE.match(lines[i]):
            shared_by_all.append(_variable(m))
        i += 1
    if body is None:
        raise PtxError(f"no kernel {entry!r} in the PTX; there are: {', '.join(names) or 'none'}")
    kernel = Kernel(entry, params, {}, shared_by_all, [])
    _parse_body(kernel, lines, body, files)
    return kernel


def _name_of(header: str) -> str:
    before = re.sub(r"^.*?\.(entry|func)\s*(\(\s*\.[^)]*\)\s*)?", "", header, count=1)
    return re.match(r"\s*([\w$]+)", before)[1]


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
    """Inline assembly comes as "{add.f16 a,b,c;}" or several statements on a line: taken apart."""
    out = []
    for line in lines:
        text = line.strip()
        if text.startswith("{") and text != "{":
            out.append("{")
            text = text[1:].strip()
        closing = re.search(r";\s*\}$", text)
        if closing:
            text = text[: closing.start() + 1]
        out += [f"{part};" for part in text.split(";")[:-1]] if text.count(";") > 1 else [text]
        if closing:
            out.append("}")
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
    data = b""
    if initial:
        values = re.findall(r"0[fFdD][0-9A-Fa-f]+|-?0x[0-9a-fA-F]+|-?\d+", initial)
        data = b"".join(_number(v)[1] if v[:2].lower() in ("0f", "0d") else
                        (int(v, 0) & (1 << 8 * width) - 1).to_bytes(width, "little") for v in values)  # fmt: skip
    return Variable(name, space, int(align or width), width * count, data)


def _parse_body(kernel: Kernel, lines: list[str], body: tuple[int, int], files: dict[int, str]) -> None:
    labels: dict[str, int] = {}
    branches: list[tuple[int, tuple[str, ...]]] = []
    tables: dict[str, tuple[str, ...]] = {}
    line = inlined = None
    pending_table = ""
    i, end = body[0] + 1, body[1]
    while i < end:
        text = lines[i]
        stripped = text.strip()
        if not stripped or stripped in "{}":
            i += 1
            continue
        if m := _LOC.match(text):
            file, number, at_file, at_number = m.groups()
            if int(number):  # line 0: the compiler's own; the line before stays
                here = Line(files.get(int(file), f"file {file}"), int(number))
                if at_file:
                    line, inlined = Line(files.get(int(at_file), f"file {at_file}"), int(at_number)), here
                else:
                    line, inlined = here, None
        elif m := _REG.match(text):
            _registers(kernel, m[1], m[2])
        elif m := _DECLARE.match(text):
            kernel.variables.append(_variable(m))
        elif m := re.match(r"^\s*([\w$]+):\s*\.branchtargets\s*(.*)$", text):
            joined = m[2]
            while ";" not in joined:
                i += 1
                joined += lines[i]
            tables[m[1]] = tuple(t.strip() for t in joined.rstrip("; \t").split(","))
        elif m := _LABEL.match(text):
            labels[m[1]] = len(kernel.code)
            pending_table = m[1]
        elif stripped.startswith(".branchtargets"):
            joined = stripped.removeprefix(".branchtargets")
            while ";" not in joined:
                i += 1
                joined += lines[i]
            tables[pending_table] = tuple(t.strip() for t in joined.rstrip("; \t").split(","))
        elif stripped.startswith("."):
            pass  # .pragma and other hints
        else:
            while ";" not in text:
                i += 1
                text += lines[i]
            m = _INSTRUCTION.match(text)
            if not m:
                raise PtxError(f"PTX line {i + 1} is not understood: {stripped}")
            negated, guard, opcode, rest = m.groups()
            operands = _operands(rest)
            code = Instruction(opcode, operands, (guard, bool(negated)) if guard else None, line, inlined)
            if opcode.startswith("bra"):
                branches.append((len(kernel.code), (str(operands[0].value),)))
            elif opcode.startswith("brx"):
                branches.append((len(kernel.code), tables[str(operands[1].value)]))
            kernel.code.append(code)
        i += 1
    for at, names in branches:
        kernel.code[at].targets = tuple(labels[name] for name in names)


def _registers(kernel: Kernel, type_: str, names: str) -> None:
    for name in names.split(","):
        name = name.strip()
        if m := re.match(r"^(%\w+?)<(\d+)>$", name):
            for n in range(int(m[2])):
                kernel.registers[f"{m[1]}{n}"] = type_
        else:
            kernel.registers[name] = type_


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
    r"^%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|clock|clock64|lanemask_\w+|smid|gridid|globaltimer)(\.[xyz])?$"
)


def operand(text: str) -> Operand:
    text = text.strip()
    if text.startswith("{"):
        return Operand("vector", tuple(operand(p) for p in _split(text[1:-1])))
    if text.startswith("["):
        return _memory(text[1:-1])
    if text == "_":
        return Operand("sink")
    if m := re.match(r"^(%\w+)\|(%\w+|_)$", text):
        return Operand("vector", (operand(m[1]), operand(m[2])))
    if _SPECIAL.match(text):
        return Operand("special", text[1:])
    if text.startswith("!%"):
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
