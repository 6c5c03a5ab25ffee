"""Functions of CUDA's runtime in kernels: those that assert, printf, malloc and free call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kernels.engines.emulator.heap import Heap
from kernels.engines.emulator.instructions import printf
from kernels.engines.emulator.instructions.accessor import Accessor
from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.memory import GLOBAL_BASE, WINDOWS, WRITTEN, Fault, Space, space_at
from kernels.engines.emulator.operations.dtypes import DTYPES, UNSIGNED
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.ptx.names import plain
from kernels.engines.emulator.state import Machine

Values = np.ndarray  # one an active thread


def external(m: Machine, pc: int, i: Instruction) -> Run:
    """Build a call of a function whose body is not in the source."""
    name = i.opcode.partition(".")[2]
    if m.host is not None and name in m.host.functions:
        return _call_of_host(m, pc, i, *m.host.functions[name])
    if name in ("cudaGetParameterBufferV2", "cudaLaunchDeviceV2"):
        return lambda: m.fail(pc, "a kernel that launches kernels (dynamic parallelism) is not emulated", m.slot_of(0))
    if name not in FUNCTIONS:
        message = f"call of {plain(name)}: its body is not in this source, and the emulator does not know it"
        return lambda: m.fail(pc, message, m.slot_of(0))
    function, types, result = FUNCTIONS[name]
    results, args = i.operands
    reads = [_argument(m, pc, o, type_) for o, type_ in zip(args.inner, types, strict=True)]
    put = _result(m, pc, results.inner[0], result) if results.inner else lambda values: None
    return lambda: put(function(m, pc, *(read() for read in reads)))


def _call_of_host(m: Machine, pc: int, i: Instruction, function: Callable, types: Sequence[str], result: str) -> Run:
    """Build a call by the host code of a program, which is one thread. The function takes and returns numbers."""
    results, args = i.operands
    reads = [_argument_of_host(m, pc, o, type_) for o, type_ in zip(args.inner, types, strict=True)]
    put = _result(m, pc, results.inner[0], result) if results.inner else lambda values: None
    dtype = DTYPES[result or "u32"]
    return lambda: put(np.array([function(m, pc, *(read() for read in reads)) or 0]).astype(dtype))


def _argument_of_host(m: Machine, pc: int, variable: Operand, type_: str) -> Callable[[], int | tuple[int, ...]]:
    if type_ != "dim3":
        read = _argument(m, pc, variable, type_)
        return lambda: int(read()[0])
    parts = [_argument(m, pc, variable, "u32", 4 * n) for n in range(3)]
    return lambda: tuple(int(part()[0]) for part in parts)


def _argument(m: Machine, pc: int, variable: Operand, type_: str, offset: int = 0) -> Callable[[], Values]:
    width, dtype = DTYPES[type_]().itemsize, DTYPES[type_]
    access = Accessor(m, pc, Operand("mem", None, offset, variable), "local", width)

    def read() -> Values:
        memory, _, _, chosen = access.checked(write=False)
        return memory.load(chosen, width).view(dtype)

    return read


def _result(m: Machine, pc: int, variable: Operand, type_: str) -> Callable[[Values], None]:
    width = DTYPES[type_]().itemsize
    access = Accessor(m, pc, Operand("mem", None, 0, variable), "local", width)

    def put(values: Values) -> None:
        memory, _, _, chosen = access.checked(write=True)
        memory.store(chosen, width, values.view(UNSIGNED[width]))

    return put


# -- memory at pointers -------------------------------------------------------------------------------
def _resolve(m: Machine, addresses: Values, slots: np.ndarray) -> tuple[Space, np.ndarray]:
    """Returns the space that generic addresses point into (that of the first) and the bytes' offsets there."""
    name = space_at(int(addresses[0]))
    if name == "global":
        return m.memory, addresses - np.uint64(GLOBAL_BASE)
    space, base = m.space(name)
    return space, addresses - np.uint64(WINDOWS[name]) + base[slots]


def _string(m: Machine, pc: int, address: int, slot: int) -> bytes:
    """Returns the bytes up to the next zero."""
    space, start = _resolve(m, np.array([address], np.uint64), np.array([slot]))
    stop = offset = int(start[0])
    while stop < space.bytes.size and space.bytes[stop] and space.state[stop] == WRITTEN:
        stop += 1
    try:
        space.check(start + np.arange(stop - offset + 1, dtype=np.uint64), 1, write=False)
    except Fault as fault:
        m.fail(pc, fault.description, slot)
    return space.bytes[offset:stop].tobytes()


# -- assert -------------------------------------------------------------------------------------------
def _assertfail(
    m: Machine, pc: int, expression: Values, file: Values, line: Values, function: Values, size: Values
) -> None:
    slot = m.slot_of(0)
    expression_text, name = (_string(m, pc, int(p[0]), slot).decode("utf-8", "replace") for p in (expression, file))
    written = f"{name.replace(chr(92), '/').rpartition('/')[2]}:{line[0]}"
    position = "" if written == str(m.kernel.code[pc].line) else f" at {written}"
    m.fail(pc, f"the assertion {expression_text} failed{position}", slot)


# -- printf -------------------------------------------------------------------------------------------
def _vprintf(m: Machine, pc: int, format_: Values, buffer: Values) -> Values:
    """Print. Return the number of arguments, -1 for a null format, as CUDA's printf does."""
    slots, counts = m.active_slots(), np.full(len(format_), -1, np.int32)
    for pointer in np.unique(format_[format_ != 0]):
        chosen = format_ == pointer
        who = slots[chosen]
        pieces = printf.parts(_string(m, pc, int(pointer), int(who[0])))
        counts[chosen] = sum(len(p.sizes) for p in pieces if isinstance(p, printf.Spec))
        columns = _arguments(m, pc, pieces, buffer[chosen], who)
        for n, slot in enumerate(who.tolist()):
            if m.printer.full:
                m.printer.dropped += len(who) - n
                break
            text = b"".join(_written(m, pc, pieces, [c[n] for c in columns], slot))
            m.host.write(text) if m.host is not None else m.printer.write(int(m.threads.number[slot]), text)
    return counts


def _arguments(m: Machine, pc: int, pieces, buffer: Values, slots: np.ndarray) -> list[list[int]]:
    """Returns the bits of each argument for each thread. Arguments are aligned, one after the other."""
    out, at = [], 0
    for size in (size for piece in pieces if isinstance(piece, printf.Spec) for size in piece.sizes):
        at = -(-at // size) * size
        space, offsets = _resolve(m, buffer + np.uint64(at), slots)
        try:
            space.check(offsets, size, write=False)
        except Fault as fault:
            m.fail(pc, f"printf, argument {len(out) + 1}: {fault.description}", int(slots[fault.index]))
        out.append(space.load(offsets, size).tolist())
        at += size
    return out


def _written(m: Machine, pc: int, pieces, args: list[int], slot: int) -> Iterator[bytes]:
    for piece in pieces:
        if not isinstance(piece, printf.Spec):
            yield piece
            continue
        piece_args, args = args[: len(piece.sizes)], args[len(piece.sizes) :]
        string = b""
        if piece.kind == "s":
            string = _string(m, pc, piece_args[-1], slot) if piece_args[-1] else b"(null)"
        yield piece.text(piece_args, string)


# -- malloc and free ----------------------------------------------------------------------------------
def _heap(m: Machine) -> Heap:
    heap = m.memory.heap = m.memory.heap or Heap(m.memory)
    return heap


def _malloc(m: Machine, pc: int, sizes: Values) -> Values:
    """Returns addresses of new memory, null if the heap is full."""
    heap = _heap(m)
    starts = [heap.allocate(size) for size in sizes.tolist()]
    return np.array([0 if start is None else GLOBAL_BASE + start for start in starts], np.uint64)


def _free(m: Machine, pc: int, addresses: Values) -> None:
    heap = _heap(m)
    for n, address in enumerate(addresses.tolist()):
        try:
            if address:
                heap.release(address - GLOBAL_BASE)
        except KeyError:
            freed = address - GLOBAL_BASE in heap.sizes
            reason = "that was freed before" if freed else "that malloc did not return"
            m.fail(pc, f"free of an address {reason}: {address:#x}", m.slot_of(n))


# Name: (function, types of its arguments, type of its result)
FUNCTIONS: dict[str, tuple[Callable, tuple[str, ...], str]] = {
    "__assertfail": (_assertfail, ("u64", "u64", "u32", "u64", "u64"), ""),
    "vprintf": (_vprintf, ("u64", "u64"), "s32"),
    "malloc": (_malloc, ("u64",), "u64"),
    "free": (_free, ("u64",), ""),
}
BUILDERS = {"extern": external}
