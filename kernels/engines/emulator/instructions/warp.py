"""Instructions that exchange data between lanes: shuffles, votes, matches, reductions over a warp."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.operations.dtypes import DTYPES, is_float
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine

LANE = np.arange(32)


def _active(m: Machine) -> np.ndarray:
    """Returns the active lanes as bool (warps, 32)."""
    return np.ones((m.slots // 32, 32), bool) if m.active_mask is None else m.active_mask.reshape(-1, 32)


def _lanes(m: Machine, value) -> np.ndarray:
    return np.broadcast_to(value, m.slots).reshape(-1, 32)


def _exchange(m: Machine, i: Instruction) -> Run:
    """Returns what the race detector does for lanes that exchange values. Their mask is the last operand."""
    order = m.order
    if order is None or not order.flags.acquires or "sync" not in i.parts:
        return lambda: None
    masks = m.reader(i.operands[-1], "u32")
    return lambda: order.exchange(masks())


def shuffle(m: Machine, pc: int, i: Instruction) -> Run:
    """Build shfl.sync.{up,down,bfly,idx}: PTX ISA, section "shfl.sync". What a lane reads of one that does not take part is undefined: here
    its register, in another order of the warps the inverted bits of it."""
    mode = i.parts[2] if i.parts[1] == "sync" else i.parts[1]
    target = i.operands[0]
    first, second = target.inner if target.kind == "vector" else (target, None)
    put = m.writer(first, "b32")
    inside = m.writer(second, "pred") if second is not None else None
    value, b, c = (m.reader(o, "u32") for o in i.operands[1:4])
    exchange = _exchange(m, i)
    undefined = np.int64(0 if m.threads.order == "forward" else 0xFFFFFFFF)

    def run() -> None:
        source, by, clamp = (_lanes(m, read()).astype(np.int64) for read in (value, b, c))
        segment, limit = (clamp >> 8) & 31, clamp & 31
        by = by & 31
        top, bottom = (LANE & segment) | (limit & ~segment), LANE & segment
        if mode == "up":
            j = LANE - by
            ok = j >= top
        elif mode == "down":
            j = LANE + by
            ok = j <= top
        elif mode == "bfly":
            j = LANE ^ by
            ok = j <= top
        else:
            j = bottom | (by & ~segment)
            ok = j <= top
        j = np.where(ok, j, LANE)
        values = np.take_along_axis(source, j, axis=1)
        if m.active_mask is not None and (strange := _takes_no_part(m, j)).any():
            values[strange] ^= undefined
            _note_undefined(m, pc, strange, j)
        put(values.astype(np.uint32).reshape(-1))
        if inside:
            inside(ok.reshape(-1))
        exchange()
        if m.trace is not None:
            m.trace.shuffled(j, values)

    return run


def _takes_no_part(m: Machine, sources: np.ndarray) -> np.ndarray:
    """Returns which active lanes read a lane that is not active."""
    active = _active(m)
    return active & ~np.take_along_axis(active, sources, axis=1)


def _note_undefined(m: Machine, pc: int, lanes: np.ndarray, sources: np.ndarray) -> None:
    if pc not in m.undefined:
        row, lane = (int(n[0]) for n in np.nonzero(lanes))
        slot = 32 * row + lane
        m.undefined[pc] = (
            f"{m.where(pc)}: lane {lane} reads a value of lane {sources[row, lane]}, which does not take part in this shuffle: it is "
            f"undefined, by thread {m.threads.thread(slot)} of block {m.threads.block_at(slot)}"
        )


def vote(m: Machine, pc: int, i: Instruction) -> Run:
    """Build vote.sync.{all,any,uni,ballot} over the active lanes."""
    mode = i.parts[2] if i.parts[1] == "sync" else i.parts[1]
    put, p = m.writer(i.operands[0], "b32" if mode == "ballot" else "pred"), m.reader(i.operands[1], "pred")
    exchange = _exchange(m, i)

    def run() -> None:
        active, predicate = _active(m), _lanes(m, p())
        true_lanes = predicate & active
        if mode == "ballot":
            out = _bits(true_lanes)
        elif mode == "any":
            out = true_lanes.any(axis=1)
        else:
            out = (predicate | ~active).all(axis=1)
            if mode == "uni":
                out |= ~true_lanes.any(axis=1)
        put(np.repeat(out, 32))
        exchange()

    return run


def _bits(lanes: np.ndarray) -> np.ndarray:
    return (lanes.astype(np.uint64) << LANE.astype(np.uint64)).sum(axis=1).astype(np.uint32)


def activemask(m: Machine, pc: int, i: Instruction) -> Run:
    put = m.writer(i.operands[0], "b32")
    return lambda: put(np.repeat(_bits(_active(m)), 32))


def match(m: Machine, pc: int, i: Instruction) -> Run:
    """Build match.any.sync and match.all.sync: which lanes have the same value."""
    type_, mode = i.parts[-1], i.parts[1]
    target = i.operands[0]
    first, second = target.inner if target.kind == "vector" else (target, None)
    put = m.writer(first, "b32")
    flag = m.writer(second, "pred") if second is not None else None
    value = m.reader(i.operands[1], type_)

    def run() -> None:
        active, values = _active(m), _lanes(m, value())
        same = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        masks = (same.astype(np.uint64) << LANE.astype(np.uint64)).sum(axis=2).astype(np.uint32)
        if mode == "all":
            all_equal = masks == _bits(active)[:, None]
            masks = np.where(all_equal, masks, np.uint32(0))
            if flag:
                flag(all_equal.reshape(-1))
        put(masks.reshape(-1))

    return run


def redux(m: Machine, pc: int, i: Instruction) -> Run:
    """Build redux.sync: one result of all active lanes."""
    op, type_ = i.parts[2], i.parts[-1]
    if len(i.parts) != 4 or is_float(type_):
        raise Unknown(f"unknown opcode {i.opcode}")
    compute = type_ if type_[0] != "b" else f"u{type_[1:]}"
    put, value = m.writer(i.operands[0], compute), m.reader(i.operands[1], compute)
    dtype = DTYPES[compute]
    f, start = {
        "add": (np.add, 0),
        "min": (np.minimum, np.iinfo(dtype).max),
        "max": (np.maximum, np.iinfo(dtype).min),
        "and": (np.bitwise_and, -1),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }[op]

    def run() -> None:
        values = np.where(_active(m), _lanes(m, value()), np.array(start).astype(dtype))
        put(np.repeat(f.reduce(values, axis=1).astype(dtype), 32))

    return run


def elect(m: Machine, pc: int, i: Instruction) -> Run:
    """Build elect.sync: selects the first active lane; writes its number, and whether a lane is the selected one."""
    number, flag = i.operands[0].inner
    put, chosen = m.writer(number, "b32"), m.writer(flag, "pred")

    def run() -> None:
        first = _active(m).argmax(axis=1)
        put(np.repeat(first.astype(np.uint32), 32))
        chosen((first[:, None] == LANE).reshape(-1))

    return run


def warp_barrier(m: Machine, pc: int, i: Instruction) -> Run:
    """Build bar.warp.sync, run when its lanes have arrived. It affects only the race detector."""
    if "warp" not in i.parts:
        raise Unknown(f"unknown opcode {i.opcode}")
    masks = m.reader(i.operands[0], "u32")

    def run() -> None:
        if m.order is not None:
            m.order.warp_barrier(masks())

    return run


BUILDERS = {
    "bar": warp_barrier,
    "barrier": warp_barrier,
    "shfl": shuffle,
    "vote": vote,
    "activemask": activemask,
    "match": match,
    "redux": redux,
    "elect": elect,
}
