"""Kernels and variables of a file by their C++ names (naive, ns::naive, sgemm<16, float>) or by their PTX names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernels.engines.emulator.compiler import compile as compiler
from kernels.engines.emulator.compiler.compile import CompileError, Unit, compile_unit
from kernels.engines.emulator.ptx.names import demangled, plain
from kernels.model.program import RuleError

_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak)\s+)*\.entry\s+([\w$]+)", re.MULTILINE)
_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|weak|extern|common)\s+)*\.(?:const|global)\s+(?:\.attribute\(\.managed\)\s+)?(?:\.align\s+\d+\s+)?"
    r"\.\w+\s+([\w$]+)",
    re.MULTILINE,
)
_TEMPLATE = re.compile(
    r"\btemplate\s*<[^;{}]*?\b__global__\b[^;{}]*?(?:__launch_bounds__\s*\([^)]*\)[^;{}(]*?)?\b(\w+)\s*\("
)
_NAME_EXPRESSION_ERROR = "__nv_name_map"  # in the compiler's message, the variable for the names it was given


def compile_entry(
    text: str, file: str, options: Sequence[str], entry: str, variables: Sequence[str] = ()
) -> tuple[str, str, dict[str, str]]:
    """Returns the PTX of a file's text and the PTX names of the kernel `entry` and of each of these variables.

    RuleError lists the existing names if none or several match. Other errors are those of compile_ptx.
    """
    if not isinstance(entry, str):
        raise RuleError(f"an entry is a kernel's name, got {entry!r}")
    expressions = [f"&{name}" for name in variables]
    unit = _compiled(text, file, options, [entry, *expressions]) or _compiled(text, file, options, [entry])
    unit = unit or compile_unit(text, file, options)  # raises if the name is not the cause
    return unit.ptx, *in_ptx(unit, entry, variables, _templates(text))


def compile_cubin(text: str, file: str, options: Sequence[str], entry: str) -> bytes:
    """Returns the machine code of a file's text, with the kernel `entry`, a name that compile_entry accepts."""
    try:
        return compiler.compile_cubin(text, file, options, [entry])
    except CompileError as e:
        if _NAME_EXPRESSION_ERROR not in str(e):
            raise
        return compiler.compile_cubin(text, file, options)


def in_ptx(
    unit: Unit, entry: str, variables: Sequence[str], templates: Sequence[str] = ()
) -> tuple[str, dict[str, str]]:
    """Returns the PTX names of the kernel `entry` and of each of these variables. RuleError as in compile_entry."""
    if not isinstance(entry, str):
        raise RuleError(f"an entry is a kernel's name, got {entry!r}")
    kernel = _named(entry, unit, _ENTRY, "kernel", entry, templates)
    return kernel, {v: _named(v, unit, _VARIABLE, "variable", f"&{v}") for v in variables}


def _compiled(text: str, file: str, options: Sequence[str], names: Sequence[str]) -> Unit | None:
    """Returns the compiled file; None if one of these names is the reason that it does not compile."""
    try:
        return compile_unit(text, file, options, names)
    except CompileError as e:
        if _NAME_EXPRESSION_ERROR not in str(e):
            raise
        return None


def _named(
    name: str, unit: Unit, pattern: re.Pattern, kind: str, expression: str, templates: Sequence[str] = ()
) -> str:
    """Returns the PTX's name for `expression`, as the compiler found it, or of the only one whose name ends with `name`."""
    available = pattern.findall(unit.ptx)
    if unit.lowered.get(expression) in available:
        return unit.lowered[expression]
    if name in available:
        return name
    found = [known for known in available if _is_called(plain(known), name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise RuleError(f"several {kind}s are called {name!r}; name one as the PTX does: {_listed(found)}")
    listed = "; ".join(filter(None, (_listed(available), *templates))) or "none"
    raise RuleError(f"no {kind} {name!r}; there are: {listed}")


def _is_called(known: str, name: str) -> bool:
    """Returns whether a name of C++ ends with `name`; a template's arguments may be left out."""
    return any(f"::{form}".endswith(f"::{name}") for form in (known, known.partition("<")[0]))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name if demangled(name) == name else f"{name} = {demangled(name)}" for name in names)


def _templates(text: str) -> list[str]:
    """Returns a note on each template of a kernel. Its instances exist only if they are named."""
    return [f"{name}<...>, a template: name its arguments" for name in dict.fromkeys(_TEMPLATE.findall(text))]
