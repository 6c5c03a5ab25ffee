"""Atomics on shared memory that ptxas writes as a loop: load the word, compute, compare and swap."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.state import Machine, needed


def is_loop(op: str, type_: str) -> bool:
    """Returns whether the hardware lacks this instruction for shared memory. It has those of 32-bit integers, and
    exchanges and compare-and-swaps from 32 bits up."""
    return type_ not in ("u32", "s32", "b32") and (op not in ("exch", "cas") or type_ == "b16")


def count(m: Machine, pc: int, width: int, offsets: np.ndarray) -> None:
    """Count the loads of such a loop. In each iteration, the lanes whose swap has not succeeded load.

    `width`: bytes that the active threads update at `offsets` (one a slot). Of the lanes with words in one bank, the
    first succeeds; with 16-bit words, the first at each word. 64-bit words are handled by halves of the warp.
    Warps do not interfere here. On the hardware, warps that update one word at once need more iterations.
    """
    tally = needed(m.tally)
    bits16, width = width < 4, max(width, 4)
    waiting = np.ones(m.slots, bool) if m.active_mask is None else m.active_mask.copy()
    words = (offsets // np.uint64(width)).astype(np.int64)
    lines = (words * width).astype(np.uint64).reshape(-1, 32)
    lane = np.arange(m.slots, dtype=np.int64)  # keys of more than 32 bits are made of it
    warp, group = lane // 32, lane // (128 // width)
    bank = words if bits16 else words % (128 // width)
    while waiting.any():
        tally.shared_access(pc, "ld", lines, waiting.reshape(-1, 32), width)
        if m.trace is not None:
            m.trace.request("shared", "ld", lines, waiting.reshape(-1, 32), width)
        attempts = np.flatnonzero(waiting)
        attempts = attempts[rank_among_equal(group[attempts] << 40 | bank[attempts]) == 0]
        waiting[attempts[rank_among_equal(warp[attempts] << 40 | words[attempts]) == 0]] = False


def rank_among_equal(keys: np.ndarray) -> np.ndarray:
    """Returns for each entry the number of equal entries before it."""
    order = np.argsort(keys, kind="stable")
    by_key, at = keys[order], np.arange(len(keys))
    new = np.ones(len(keys), bool)
    new[1:] = by_key[1:] != by_key[:-1]
    out = np.empty(len(keys), np.intp)
    out[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    return out
