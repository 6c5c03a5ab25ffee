"""Arguments as a kernel's parameters: laid out in memory as in C, and checked against what the kernel declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.engines.emulator.arguments import Argument, Array, Struct
from kernels.engines.emulator.ptx.kernel import Kernel, Variable
from kernels.model.program import RuleError


def arrays(name: str, argument: Argument) -> Iterator[tuple[str, Array]]:
    """Yields each array of an argument with its name: arg0, or arg0.1 for the second member of a struct."""
    if isinstance(argument, Array):
        yield name, argument
    elif isinstance(argument, Struct):
        for n, member in enumerate(argument.members):
            yield from arrays(f"{name}.{n}", member)


def packed(name: str, argument: Argument, address: Callable[[str], int]) -> bytes:
    """Returns the bytes of an argument that a kernel gets. For an array it is the address that belongs to its name."""
    if isinstance(argument, Array):
        return (address(name) + argument.first * argument.dtype.itemsize).to_bytes(8, "little")
    if not isinstance(argument, Struct):
        return np.asarray(argument).tobytes()
    out = b""
    for n, member in enumerate(argument.members):
        out = _padded(out, alignment(member)) + packed(f"{name}.{n}", member, address)
    return _padded(out, alignment(argument))


def size(argument: Argument) -> int:
    """Returns the size in bytes of an argument that a kernel gets."""
    return len(packed("", argument, lambda name: 0))


def alignment(argument: Argument) -> int:
    """Returns an argument's alignment in bytes, as in C."""
    if isinstance(argument, Array):
        return 8
    if isinstance(argument, Struct):
        return max(argument.align, *map(alignment, argument.members))
    return argument.dtype.itemsize


def _padded(content: bytes, align: int) -> bytes:
    return content.ljust(-(-len(content) // align) * align, b"\0")


def check_arguments(kernel: Kernel, entry: str, args: Mapping[str, Argument]) -> None:
    """Raises RuleError if an argument does not match the kernel's parameter."""
    if len(args) != len(kernel.params):
        raise RuleError(f"{entry} takes {len(kernel.params)} arguments, got {len(args)}")
    for n, ((name, value), p) in enumerate(zip(args.items(), kernel.params, strict=True)):
        mismatch = _mismatch(value, p)
        if mismatch:
            required, actual = mismatch
            raise RuleError(f"{entry}: parameter {n} is {required}, {name} is {actual}")


def _mismatch(value: Argument, p: Variable) -> tuple[str, str] | None:
    """Returns what a parameter requires and what the argument is instead; None if they agree."""
    if size(value) != p.size:
        actual = "an array, which is a pointer" if isinstance(value, Array) else f"{size(value)} bytes wide"
        return f"{p.size} bytes wide", actual
    if p.align > alignment(value):
        return f"aligned to {p.align} bytes", f"aligned to {alignment(value)}: write struct{p.align}{{...}}"
    if isinstance(value, np.generic) and p.dtype[:1] in "fsu":
        kinds = ("a whole number", "a floating-point number")
        required, actual = kinds[p.dtype.startswith("f")], kinds[value.dtype.kind not in "iub"]
        return (required, actual) if required != actual else None
    return None


def check_variables(
    kernel: Kernel, lowered: Mapping[str, str], variables: Mapping[str, Argument], args: Mapping[str, Argument]
) -> None:
    """Raises RuleError if a value and its variable differ in size, or if a variable has the name of an argument."""
    sizes = {v.name: v.size for v in kernel.variables if v.space in ("global", "const")}
    if shared_names := sizes.keys() & args.keys():
        raise RuleError(f"the variable {shared_names.pop()} has the name of an argument here; give it another")
    for name, value in variables.items():
        capacity, required = (sizes.get(lowered[name], 0), value.nbytes if isinstance(value, Array) else size(value))
        if capacity != required:
            raise RuleError(f"the variable {name} holds {capacity:,} bytes, its value {required:,}")
