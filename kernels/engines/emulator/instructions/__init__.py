"""The table of all opcodes: from parsed instructions to closures."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial

import numpy as np

from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.instructions import (
    arithmetic,
    atomics,
    bits,
    cluster,
    comparisons,
    conversions,
    fp8,
    generic_access,
    integers,
    mbarrier,
    memory_access,
    runtime_functions,
    tensor,
    video,
    warp,
    warpgroup,
)
from kernels.engines.emulator.instructions.closure import NOTHING, Run, Unknown
from kernels.engines.emulator.instructions.flushing import Flushing
from kernels.engines.emulator.operations import table
from kernels.engines.emulator.operations.conversions import ROUND
from kernels.engines.emulator.operations.dtypes import DTYPES
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Machine, needed

_MODIFIED = (arithmetic, bits, comparisons, conversions)  # these opcodes take _MODIFIERS
_OTHERS = (
    integers,
    video,
    memory_access,
    generic_access,
    atomics,
    warp,
    tensor,
    mbarrier,
    runtime_functions,
    cluster,
    warpgroup,
)
_CHECKED = {opcode: build for part in _MODIFIED for opcode, build in part.BUILDERS.items()}
BUILDERS = _CHECKED | {opcode: build for part in _OTHERS for opcode, build in part.BUILDERS.items()}
_MODIFIERS = {
    *DTYPES, *fp8.PAIRS, "satfinite", *table.COMPARE, *table.UNORDERED, *ROUND, "num", "nan", "tf32", "rn", "rz", "rm", "rp", "rna", "ftz",
    "approx", "full", "lo", "hi", "wide", "sat", "cc", "NaN", "relu", "xorsign", "abs", "and", "or", "xor", "l", "r",
    "wrap", "clamp", "shiftamt", "to", "global", "shared", "local", "const", "param", "finite", "infinite", "number",
    "notanumber", "normal", "subnormal", "shared::cta",
}  # fmt: skip


def decode_all(m: Machine, rarely: Container[int] = ()) -> tuple[list[Run], dict[int, tuple[Callable, bool]]]:
    """Returns the closures of all instructions (of a jump table: its index) and the guards of control instructions,
    by index. Those needed `rarely` are decoded when they first run."""
    closures: list[Run] = []
    guards: dict[int, tuple[Callable, bool]] = {}
    for pc, i in enumerate(m.kernel.code):
        ending = m.flow.endings.get(pc)
        if ending and i.guard:
            guards[pc] = m.reader(Operand("reg", i.guard[0]), "pred"), i.guard[1]
        if ending and ending not in ("lanes", "wait"):
            closures.append(m.reader(i.operands[0], "u32") if ending == "table" else _ends_block)
            continue
        try:
            if pc in rarely:
                closures.append(_decoded_when_run(m, closures, pc, i))
                continue
            # Only threads whose guard is true can wait.
            closures.append(decode(m, pc, replace(i, guard=None) if ending == "wait" else i))
        except Unknown as e:
            raise EmulatorError(f"{m.where(pc)}: {e}") from None
    return closures, guards


def _decoded_when_run(m: Machine, closures: list[Run], pc: int, i: Instruction) -> Run:
    def run() -> None:
        closures[pc] = decode(m, pc, i)
        closures[pc]()

    return run


def _ends_block() -> None:
    """Stands for an instruction that the scheduler executes itself."""
    raise AssertionError("the scheduler executes this instruction")


def reasons(m: Machine) -> dict[int, Callable[[int], str]]:
    """Returns, by instruction, a function that describes what a slot's thread waits for there."""
    return {
        pc: needed(m.clusters).why if i.parts[0] == "barrier" else mbarrier.reason(m, pc, i)
        for pc, kind in m.flow.endings.items()
        if kind == "wait"
        for i in (m.kernel.code[pc],)
    }


def _by_active(m: Machine, run: Callable[[np.ndarray], None]) -> None:
    """Do for the active threads what takes their slots."""
    run(m.active_slots())


def decode(m: Machine, pc: int, i: Instruction) -> Run:
    """Returns the closure of an instruction that is no branch, return or block barrier."""
    base = i.parts[0]
    if i.parts[:3] == ["fence", "proxy", "async"] and m.proxies is not None:
        return m.proxies.fence if i.guard is None else _guarded(m, i.guard, m.proxies.fence)
    if base in ("membar", "fence") and m.order is not None and not {"proxy", "mbarrier_init"} & set(i.parts):
        fence = m.order.flags.fence_in_block if "cta" in i.parts else m.order.flags.fence
        by_active = partial(_by_active, m, fence)
        return by_active if i.guard is None else _guarded(m, i.guard, by_active)
    if base in NOTHING:
        return lambda: None
    build = BUILDERS.get(".".join(i.parts[:2])) or BUILDERS.get(base)
    if build is None or (build is _CHECKED.get(base) and not _MODIFIERS.issuperset(i.parts[1:])):
        raise Unknown(f"unknown opcode {i.opcode}")
    try:
        run = build(Flushing(m, i) if "ftz" in i.parts else m, pc, i)
    except KeyError:  # a type or a form that the builder's tables do not have
        raise Unknown(f"unknown opcode {i.opcode}") from None
    except IndexError:
        raise Unknown(f"{i.opcode} with {len(i.operands)} operands is not understood") from None
    if m.products is not None:
        run = m.products.checked(pc, i, run)
    for check in (m.first_nan, m.overflow):
        if check is not None:
            run = check.around(pc, i, run)
    return run if i.guard is None else _guarded(m, i.guard, run)


def _guarded(m: Machine, guard: tuple[str, bool], run: Run) -> Run:
    predicate = m.reader(Operand("reg", guard[0]), "pred")
    negated = guard[1]

    def guarded() -> None:
        p = predicate()
        if p.ndim == 0:
            if bool(p) != negated:
                run()
            return
        take = ~p if negated else p
        active_mask, write_mask = m.active_mask, m.write_mask
        m.active_mask = m.write_mask = take if active_mask is None else active_mask & take
        try:
            if m.active_mask.any():
                run()
        finally:
            m.active_mask, m.write_mask = active_mask, write_mask

    return guarded
