"""Warp instructions that name their lanes in a mask. The lanes wait there for each other.

Lanes may reach a __syncwarp at several lines, a shuffle, vote, match or reduction at one. Lanes that have ended are
not waited for (PTX ISA, "bar.warp.sync").
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.engines.emulator.ptx.kernel import Operand
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES, Groups, bits_of_lanes, join

_OF_THE_WARP = {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"}  # instructions of all lanes, without a mask


class Lanes:
    """The threads that wait for other lanes of their warp, by instruction (`waiting`)."""

    def __init__(self, m: Machine):
        self.m, self.code = m, m.kernel.code
        self.waiting: Groups = {}
        lanes = [pc for pc, kind in m.flow.endings.items() if kind == "lanes"]
        self._barriers = {pc for pc in lanes if self.code[pc].parts[0] in ("bar", "barrier")}
        self._masks = {pc: m.reader(self._mask(pc), "u32") for pc in lanes}

    def _mask(self, pc: int) -> Operand:
        if self._has_mask(pc):
            return self.code[pc].operands[0 if pc in self._barriers else -1]
        return Operand("imm", -1)

    def _has_mask(self, pc: int) -> bool:
        return self.code[pc].parts[0] not in _OF_THE_WARP

    def arrive(self, pc: int, here: np.ndarray) -> Groups:
        """Add threads that reach an instruction with a mask. Return the threads that can now execute, by instruction."""
        if self.m.whole_warps(here):
            return {pc: here}
        join(self.waiting, pc, here)
        return self.release()

    def release(self) -> Groups:
        """Returns the threads that wait for no lane any more, by instruction."""
        released: Groups = {}
        for pc, threads in list(self.waiting.items()):
            ready = threads & ~self._missing(pc).astype(bool)
            if ready.any():
                released[pc] = ready
        for pc, ready in released.items():
            rest = self.waiting.pop(pc) & ~ready
            if rest.any():
                self.waiting[pc] = rest
        return released

    def of_one_mask(self, pc: int, threads: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the threads in groups. In a group, the threads of one warp name the same lanes."""
        masks = self._masks[pc]()
        if masks.ndim == 0 or pc in self._barriers:
            yield threads
            return
        rows = np.arange(len(masks) // LANES)
        while threads.any():
            first = threads.reshape(-1, LANES).argmax(axis=1)
            group = threads & (masks == np.repeat(masks.reshape(-1, LANES)[rows, first], LANES))
            yield group
            threads = threads & ~group

    def _missing(self, pc: int) -> np.ndarray:
        """Returns for each slot the lanes, as bits, that the mask at pc names and that have not arrived."""
        arrived = self.waiting[pc]
        for at in self._barriers & self.waiting.keys() if pc in self._barriers else ():
            arrived = arrived | self.waiting[at]
        not_arrived = bits_of_lanes(self.m.live & ~arrived)
        return self._masks[pc]() & np.repeat(not_arrived, LANES)

    def check_skipped(self, pc: int, here: np.ndarray) -> None:
        """Raise EmulatorError if lanes run the block at pc while others wait for them at an earlier instruction."""
        for at, threads in self.waiting.items():
            if pc in self.m.flow.past(at):
                missing = np.where(threads, self._missing(at), np.uint32(0))
                skipped = np.bitwise_or.reduce(missing.reshape(-1, LANES), axis=1) & bits_of_lanes(here)
                if skipped.any():
                    self._fail(at, skipped, "run past it while others wait")

    def check_deadlock(self) -> None:
        """Raise EmulatorError if lanes wait: no thread runs, so no other lane can arrive."""
        for pc, threads in self.waiting.items():
            missing = np.where(threads, self._missing(pc), np.uint32(0)).reshape(-1, LANES)
            self._fail(pc, np.bitwise_or.reduce(missing, axis=1), "cannot come: deadlock")

    def _fail(self, pc: int, missing: np.ndarray, outcome: str) -> None:
        warp = int(np.flatnonzero(missing)[0])
        lanes = [n for n in range(LANES) if int(missing[warp]) >> n & 1]
        named = "that the mask names" if self._has_mask(pc) else "of the warp"
        message = f"not all lanes {named} reach this instruction: lanes {_ranges(lanes)} {outcome}"
        self.m.fail(pc, message, warp * LANES + lanes[0], "first")


def _ranges(numbers: list[int]) -> str:
    """Returns numbers as text: "0 to 3, 7"."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a} to {b}" if a != b else f"{a}" for a, b in zip(starts, ends, strict=True))
