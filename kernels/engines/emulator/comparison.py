"""Whether a kernel's output is right: it is compared with a NumPy expression of its arguments, computed in float64."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.arguments import Argument, Array
from kernels.model.program import RuleError

# The largest error, as a share of the largest expected number. Whole numbers must be equal.
TOLERANCE = {
    "float64": 1e-11, "complex128": 1e-11, "float32": 2e-5, "complex64": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2,
}  # fmt: skip
SHOWN = 10  # elements that differ
_TARGET = re.compile(r"^\s*(\w+)\s*=(?!=)\s*(.*)$", re.DOTALL)
_BUILTINS = {
    f.__name__: f for f in (abs, all, any, bool, enumerate, float, int, len, max, min, range, round, sorted, sum, zip)
}
_SYNTAX = (
    ast.Expression, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.comprehension, ast.arguments, ast.arg,
    ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Attribute, ast.Name, ast.Constant, ast.Subscript,
    ast.Slice, ast.Tuple, ast.List, ast.Lambda, ast.IfExp, ast.ListComp, ast.GeneratorExp, ast.Starred,
)  # fmt: skip
# Attributes of NumPy and of arrays that read or write files, or lead to other modules.
_CLOSED = {
    "load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap", "tofile",
    "dump", "dumps", "lib", "ctypeslib", "ctypes", "f2py", "testing", "core", "DataSource", "data",
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """`name`: the argument whose array is compared. `expression`: NumPy, of the arguments as they were before the launch."""

    name: str
    expression: str
    tolerance: float | None = None  # None: that of the array's type


@dataclass(frozen=True)
class Compared:
    """Whether an array is right, and what differs, in words. `wrong`: which of its elements differ."""

    right: bool
    text: str
    wrong: np.ndarray


def parse(text: str, values: Mapping[str, Argument], tolerance: float | None = None) -> Check:
    """Returns the check of "arg2 = arg0 @ arg1", or of an expression alone if one argument is an `empty` array."""
    if found := _TARGET.match(text):
        name, expression = found.groups()
        if not isinstance(values.get(name), Array):
            arrays = ", ".join(n for n, value in values.items() if isinstance(value, Array)) or "none"
            raise RuleError(f"--check compares an array argument, and {name} is none; there are: {arrays}")
        return Check(name, expression, tolerance)
    empty = [n for n, value in values.items() if isinstance(value, Array) and value.fill == "empty"]
    if len(empty) != 1:
        raise RuleError(
            f'--check must name what is compared, as in "arg2 = {text.strip()}": {len(empty)} arguments are empty arrays'
        )
    return Check(empty[0], text, tolerance)


def expected(check: Check, before: Mapping[str, object]) -> np.ndarray:
    """Returns what the expression gives for the arguments as they were before the launch, floats as float64. RuleError names
    what is wrong with it."""
    try:
        tree = ast.parse(check.expression.strip(), mode="eval")
    except SyntaxError as error:
        raise RuleError(f"--check is no expression: {error.msg} in {check.expression!r}") from None
    inner = {
        a.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for a in (*node.args, *node.kwonlyargs)
    }
    inner |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = {"np": np, **_BUILTINS, **{n: _wide(value) for n, value in before.items()}}
    for node in ast.walk(tree):
        if not isinstance(node, _SYNTAX):
            raise RuleError(f"--check is an expression of NumPy: {type(node).__name__} has no place in it")
        if isinstance(node, ast.Name) and node.id not in names.keys() | inner:
            raise RuleError(f"--check does not know {node.id!r}; it knows np, {', '.join(before)}")
        if isinstance(node, ast.Attribute) and (node.attr.startswith("_") or node.attr in _CLOSED):
            raise RuleError(f"--check may not use .{node.attr}")
    try:
        with np.errstate(all="ignore"):
            return np.asarray(eval(compile(tree, "--check", "eval"), names))
    except Exception as error:  # of the reader's expression: its message is what helps
        raise RuleError(f"--check fails: {type(error).__name__}: {error}") from None


def _wide(value: object) -> object:
    """Returns a number or an array with floats as float64, complex numbers as complex128, whole numbers in 64 bits."""
    array = np.asarray(value)
    if array.dtype.kind == "b" or array.dtype == np.uint64:
        return array
    return array.astype(np.int64 if array.dtype.kind in "iu" else widest(array))


def widest(array: np.ndarray) -> type:
    """Returns the type in which numbers of an array are compared."""
    return np.complex128 if array.dtype.kind == "c" else np.float64


def compare(
    check: Check, got: np.ndarray, want: np.ndarray, unwritten: np.ndarray, writer: Callable[[int], str] = lambda n: ""
) -> Compared:
    """Returns whether an array is what the expression gives.

    unwritten: its elements that the kernel never wrote, bool[shape]. writer(n): the thread that wrote the n-th one, in words.
    """
    if want.shape != got.shape and want.size not in (1, got.size):
        raise RuleError(f"--check gives an array of {list(want.shape)}, {check.name} has {list(got.shape)}")
    want = np.broadcast_to(want.reshape(got.shape) if want.size == got.size else want.reshape(()), got.shape)
    close, error, tolerance = _closeness(check, got, want)
    wrong = ~close | unwritten
    if not wrong.any():
        largest = f", largest error {error:.2g} of the largest number" if tolerance else ""
        return Compared(
            right=True,
            text=f"right: {check.name} is {check.expression.strip()} ({got.size:,} elements{largest})",
            wrong=wrong,
        )
    lines = [f"wrong: {np.count_nonzero(wrong):,} of {got.size:,} elements of {check.name} differ{_where(wrong)}"]
    for n in np.flatnonzero(wrong)[:SHOWN].tolist():
        index = ", ".join(str(int(i)) for i in np.unravel_index(n, got.shape))
        found = "was never written" if unwritten.flat[n] else f"is {got.flat[n]:.7g}"
        by = "" if unwritten.flat[n] else writer(n)
        lines.append(f"  {check.name}[{index}] {found}, expected {want.flat[n]:.7g}{by}")
    return Compared(right=False, text="\n".join(lines), wrong=wrong)


def _closeness(check: Check, got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Returns which elements are close, the largest error as a share of the largest expected number, and the tolerance."""
    if got.dtype.kind in "iub" and check.tolerance is None:
        return np.asarray(got == want), 0.0, 0.0
    tolerance = TOLERANCE.get(str(got.dtype), 0.1) if check.tolerance is None else check.tolerance
    values, want = got.astype(widest(got)), want.astype(widest(want))
    finite = np.isfinite(want) & np.isfinite(values)
    scale = np.abs(want[finite]).max(initial=0.0) or 1.0
    with np.errstate(invalid="ignore"):
        error = np.where(finite, np.abs(values - want) / scale, 0.0)
        same = (values == want) | (np.isnan(values) & np.isnan(want))
    return np.where(finite, error <= tolerance, same), float(error.max(initial=0.0)), tolerance


# -- where they are ------------------------------------------------------------------------------------
def _where(wrong: np.ndarray) -> str:
    """Returns the pattern of the elements that differ: all of some rows or columns, a rectangle, a tail, every k-th."""
    flat = np.flatnonzero(wrong)
    if flat.size == wrong.size or flat.size < 2:
        return ""
    if flat[-1] == wrong.size - 1 and flat[-1] - flat[0] == flat.size - 1:
        return f": all from element {flat[0]} on"
    if wrong.ndim > 1:
        matrix = wrong.reshape(-1, wrong.shape[-1])
        rows, columns = np.flatnonzero(matrix.any(axis=1)), np.flatnonzero(matrix.any(axis=0))
        if matrix[np.ix_(rows, columns)].all():
            return f": {_part(rows, len(matrix), 'row')}{_part(columns, matrix.shape[1], 'column', ' of ')}"
    steps = np.unique(np.diff(flat))
    return f": every {_ordinal(int(steps[0]))} from element {flat[0]} on" if steps.size == 1 and steps[0] > 1 else ""


def _part(indices: np.ndarray, extent: int, name: str, before: str = "") -> str:
    if len(indices) == extent:
        return f"{before}all {name}s"
    if len(indices) == 1:
        return f"{before}{name} {indices[0]}"
    if indices[-1] - indices[0] == len(indices) - 1:
        return f"{before}{name}s {indices[0]} to {indices[-1]}"
    return f"{before}{len(indices)} {name}s, the first {indices[0]}"


def _ordinal(n: int) -> str:
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
