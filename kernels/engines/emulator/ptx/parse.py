"""The text of a PTX module, parsed to a Kernel.

Kernels and functions (`.func`, which -G leaves in the module) have the same form; bodies.py parses their bodies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from kernels.engines.emulator.ptx.bodies import BodyReader, FunctionText, Statements
from kernels.engines.emulator.ptx.callgraph import framed
from kernels.engines.emulator.ptx.declarations import params, variable
from kernels.engines.emulator.ptx.kernel import Kernel, PtxError, Variable
from kernels.engines.emulator.ptx.operands import matched

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\b")
_HEADER = re.compile(r".*?\.(?:entry|func)\s*(\([^)]*\))?\s*([\w$]+)\s*(\(.*\))?", re.DOTALL)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_DEBUG = re.compile(r"^\s*\.target\b.*\bdebug\b")
_UP_TO_THREE = r"\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?"
_CLUSTER = re.compile(rf"\.reqnctapercluster{_UP_TO_THREE}")
_THREADS = re.compile(rf"\.(?:max|req)ntid{_UP_TO_THREE}")
_REQUIRED = re.compile(rf"\.reqntid{_UP_TO_THREE}")
_LABELLED = re.compile(r"^([\w$]+\s*:)(?!:)\s*(\S.*)$")


@lru_cache(maxsize=64)  # about 1 MB each; a kernel is launched more often than it is parsed
def parse(ptx: str, entry: str) -> Kernel:
    """Returns the kernel `entry` of a PTX module, with the module's variables. Callers must not change it: the next
    launch gets the same object. PtxError if the module has no such kernel."""
    return read(ptx, entry)


def read(ptx: str, entry: str) -> Kernel:
    """Returns a kernel that the caller may change, as `parse`."""
    lines, numbers = _statements(_COMMENT.sub(lambda m: "\n" * m[0].count("\n"), ptx))
    found = files(lines)
    functions, variables = _declarations(lines, numbers)
    if entry not in functions:
        raise PtxError(f"no kernel {entry!r} in the PTX; there are: {', '.join(functions) or 'none'}")
    text = functions[entry]
    kernel = Kernel(
        entry,
        text.params,
        {},
        variables,
        [],
        names=tuple(functions),
        cluster=text.cluster,
        max_threads=text.max_threads,
        required_block=text.required_block,
        debug=any(map(_DEBUG.match, lines)),
    )
    BodyReader(kernel, Statements(lines, numbers, found), functions, _framed(kernel, lines, functions)).read()
    return kernel


def files(lines: Iterable[str]) -> dict[int, str]:
    """Returns the names of a module's source files, without their folders, by number."""
    return {int(m[1]): m[2].replace("\\", "/").rpartition("/")[2] for m in map(_FILE.match, lines) if m}


def _declarations(lines: Sequence[str], numbers: Sequence[int]) -> tuple[dict[str, FunctionText], list[Variable]]:
    """Returns the module's kernels and functions that have a body, by name, and its variables."""
    functions: dict[str, FunctionText] = {}
    variables = []
    i = 0
    while i < len(lines):
        if _FUNCTION.match(lines[i]):
            start = i
            while "{" not in lines[i] and ";" not in lines[i]:
                i += 1
                if i == len(lines):
                    raise PtxError(f"PTX line {numbers[start]}: a header without a body: {lines[start].strip()}")
            header = " ".join(lines[start : i + 1])
            results, name, parameters = matched(_HEADER, header).groups()
            if "{" in lines[i]:
                start, i = i + 1, _closing(lines, i, numbers)
                functions[name] = FunctionText(
                    params(results or ""),
                    params(parameters or ""),
                    (start, i),
                    _extents(_CLUSTER, header),
                    _max_threads(header),
                    _extents(_REQUIRED, header) if _REQUIRED.search(header) else None,
                )
        elif v := _variable(lines[i], numbers[i]):
            variables.append(v)
        i += 1
    return functions, variables


def _variable(statement: str, number: int) -> Variable | None:
    try:
        return variable(statement)
    except (KeyError, ValueError) as e:
        raise PtxError(f"PTX line {number} is not understood: {statement.strip()} ({e})") from None


def _max_threads(header: str) -> int:
    return math.prod(_extents(_THREADS, header)) if _THREADS.search(header) else 0


def _extents(pattern: re.Pattern, header: str) -> tuple[int, int, int]:
    """Returns the extents along x, y, z in a kernel's header, as __cluster_dims__ and __launch_bounds__ write them."""
    m = pattern.search(header)
    x, y, z = (int(extent or 1) for extent in m.groups()) if m else (1, 1, 1)
    return x, y, z


def _framed(kernel: Kernel, lines: Sequence[str], functions: dict[str, FunctionText]) -> dict[str, bool]:
    """Returns the functions that need call frames, callees first, each with whether it is recursive."""
    bodies = {name: "\n".join(lines[slice(*f.body)]) for name, f in functions.items()}
    if "call" not in bodies[kernel.name]:
        return {}
    initial = {v.name: [a.symbol for a in v.addresses] for v in kernel.variables}
    return framed(kernel.name, bodies, initial)


def _closing(lines: Sequence[str], start: int, numbers: Sequence[int]) -> int:
    """Returns the line that closes the body opened at or after `start`."""
    depth = 0
    for i in range(start, len(lines)):
        stripped = lines[i].strip()
        depth += stripped == "{" or (stripped.endswith("{") and "}" not in stripped)
        if stripped == "}":
            depth -= 1
            if depth == 0:
                return i
    raise PtxError(f"PTX line {numbers[start]}: a body without its end")


def _statements(text: str) -> tuple[list[str], list[int]]:
    """Returns the lines of a module without comments, no more than one statement on a line, and the number of each
    in the text.

    Inline assembly has several statements on a line, "{add.f16 a,b,c;}", or one on several lines. The brace that opens
    a function's body is a line of its own.
    """
    out: list[str] = []
    numbers: list[int] = []
    unfinished = header = False  # an unfinished instruction continues: braces are a vector's, not a scope's
    for number, line in enumerate(text.split("\n"), 1):
        text = line.split("//")[0].strip()
        while text:
            numbers.append(number)
            if not unfinished and text[0] in "{}":
                out.append(text[0])
                text, header = text[1:].strip(), False
                continue
            label = None if unfinished else _LABELLED.match(text)
            if label:
                out.append(label[1])
                text = label[2]
                continue
            header = header or bool(_FUNCTION.match(text))
            if header and "{" in text:
                statement, _, text = text.partition("{")
                out.append(statement)
                text = "{" + text
                continue
            statement, end, text = text.partition(";")
            out.append(statement + end)
            header = header and not end
            unfinished = not end and (unfinished or bool(re.match(r"[a-z@]", statement)))
            if unfinished and statement.endswith(":"):
                unfinished = False
            text = text.strip()
    return out, numbers
