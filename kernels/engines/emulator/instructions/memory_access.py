"""Loads and stores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.engines.emulator.instructions.accessor import Accessor, operands_of, space_of
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.instructions.generic_access import by_space
from kernels.engines.emulator.operations.dtypes import DTYPES, UNSIGNED
from kernels.engines.emulator.ptx.kernel import Instruction, Operand, type_bytes
from kernels.engines.emulator.state import Machine, Put


def load(m: Machine, pc: int, i: Instruction) -> Run:
    """Build ld and ldu: from any space, also vectors; narrow types are extended."""
    space, type_, count = space_of(i), i.parts[-1], i.elements
    target, source = operands_of(i)
    puts = [m.writer(t, type_) for t in target.elements]
    if space == "param" and source.root.kind == "symbol":
        return _load_param(m, source, type_, puts)
    width, dtype = type_bytes(type_), DTYPES[type_]
    access = Accessor(m, pc, source, space, width * count)

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=False)
        if name != "const":
            access.count("ld", name, offsets)
        for n, put in enumerate(puts):
            loaded = memory.load(chosen + np.uint64(n * width) if n else chosen, width)
            if m.trace is not None:
                m.trace.access(pc, name, offsets + np.uint64(n * width), loaded, dtype, write=False)
            put(m.spread(loaded).view(dtype))

    return run


def _load_param(m: Machine, source: Operand, type_: str, puts: Sequence[Put]) -> Run:
    name, offset = source.root.name, source.offset + source.root.offset
    width = type_bytes(type_)
    if all(p.name != name for p in m.kernel.params):
        raise Unknown(f"{name} is no parameter of the kernel")
    values = [m.param(name, offset + n * width, DTYPES[type_]) for n in range(len(puts))]

    def run() -> None:
        for put, value in zip(puts, values, strict=True):
            put(value)

    return run


def store(m: Machine, pc: int, i: Instruction) -> Run:
    """Build st, also of vectors."""
    space, type_, count = space_of(i), i.parts[-1], i.elements
    target, source = operands_of(i)
    width, dtype = type_bytes(type_), DTYPES[type_]
    reads = [m.reader(s, type_) for s in source.elements]
    access = Accessor(m, pc, target, space, width * count)
    bits = UNSIGNED[width]

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=True)
        access.count("st", name, offsets)
        elements = [m.active(read()).view(bits) for read in reads]
        if (races := m.races.get(name)) is not None:
            races.write(pc, offsets, width * count, np.stack(elements, axis=-1))
        for n, values in enumerate(elements):
            memory.store(chosen + np.uint64(n * width) if n else chosen, width, values)
            if m.trace is not None:
                m.trace.access(pc, name, offsets + np.uint64(n * width), values, dtype, write=True)

    return run


def cache_policy(m: Machine, pc: int, i: Instruction) -> Run:
    """Build createpolicy: a cache hint without effect here."""
    put = m.writer(i.operands[0], "b64")
    return lambda: put(np.uint64(0))


BUILDERS = {"ld": by_space(load), "ldu": by_space(load), "st": by_space(store), "createpolicy": cache_policy}
