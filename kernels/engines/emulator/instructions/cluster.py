"""Clusters: addresses in another block's shared memory (mapa) and the cluster's barrier."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.clusters import INSIDE, RANK, mapped
from kernels.engines.emulator.events import Kind
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine, needed


def map_address(m: Machine, pc: int, i: Instruction) -> Run:
    """Build mapa: the address in the block with a rank of the cluster that corresponds to one in this block."""
    type_ = i.parts[-1]
    put, address = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_)
    rank, size = m.reader(i.operands[2], "u32"), m.threads.cluster_size
    dtype = np.uint32 if type_ == "u32" else np.uint64

    def run() -> None:
        ranks = m.active(rank())
        bad = np.flatnonzero(ranks >= size)
        if bad.size:
            m.fail(pc, f"block {ranks[bad[0]]} of a cluster of {size}", m.slot_of(int(bad[0])))
        put(mapped(address().astype(np.uint64), rank()).astype(dtype))

    return run


def rank_of_address(m: Machine, pc: int, i: Instruction) -> Run:
    """Build getctarank: the rank of the block that an address points into."""
    put, address = m.writer(i.operands[0], "u32"), m.reader(i.operands[1], i.parts[-1])
    own = m.threads.cluster_rank

    def run() -> None:
        named = (address().astype(np.uint64) >> np.uint64(RANK) & INSIDE & np.uint64(0xFF)).astype(np.int64)
        put(np.where(named > 0, named - 1, own).astype(np.uint32))

    return run


def barrier(m: Machine, pc: int, i: Instruction) -> Run:
    """Build barrier.cluster: an arrival, or whether the phase of the threads' last arrival has ended."""
    if "arrive" in i.parts:
        releases = "relaxed" not in i.parts
        return lambda: _arrive(m, pc, releases)
    if "wait" in i.parts:
        return lambda: _passed(m, pc)
    raise Unknown(f"unknown opcode {i.opcode}")


def _arrive(m: Machine, pc: int, releases: bool) -> None:
    needed(m.clusters).arrive(pc, releases)
    if m.trace is not None:
        m.trace.events.active(Kind.ARRIVE, pc, 1)


def _passed(m: Machine, pc: int) -> np.ndarray:
    """Returns whether the phase that each thread waits for has ended."""
    ended = needed(m.clusters).passed()
    if m.trace is not None:
        m.trace.events.waits(pc, m.active(ended))
    return ended


BUILDERS = {"mapa": map_address, "getctarank": rank_of_address, "barrier.cluster": barrier}
