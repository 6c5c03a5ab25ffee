"""The word of an mbarrier: arrivals and bytes that its phase waits for, and the phase's parity.

A phase ends when no arrival and no byte is missing. Then the parity flips and the next phase expects as many arrivals.
CUDA does not define the layout of the word; this one is the emulator's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.state import Machine, mbarrier_key

WIDTH = 8
BITS = 20  # of a count of arrivals
MAX_COUNT = (1 << BITS) - 1  # of arrivals, and of bytes
PARITY = 63  # the bit of the phase's parity
_BYTES, _BYTES_BITS = 2 * BITS, 22  # the bytes, in two's complement, begin at this bit


@dataclass
class Phase:
    """`pending` of `expected` arrivals are missing, and `bytes` of copies; below 0: more bytes came than are expected."""

    pending: int
    expected: int
    bytes: int
    parity: int

    @classmethod
    def of(cls, word: int) -> Phase:
        raw = word >> _BYTES & (1 << _BYTES_BITS) - 1
        missing = raw - (1 << _BYTES_BITS) if raw >> _BYTES_BITS - 1 else raw
        return cls(word & MAX_COUNT, word >> BITS & MAX_COUNT, missing, word >> PARITY)

    @property
    def word(self) -> int:
        raw = self.bytes & (1 << _BYTES_BITS) - 1
        return self.pending | self.expected << BITS | raw << _BYTES | self.parity << PARITY

    def ends(self) -> bool:
        """Begin the next phase if nothing is missing. Return whether it began."""
        if self.pending or self.bytes:
            return False
        self.pending, self.parity = self.expected, 1 - self.parity
        return True

    def missing(self) -> str:
        """Returns what the phase waits for, as a part of a message."""
        parts = []
        if self.pending:
            parts.append(f"{self.pending} of {self.expected} arrivals")
        if self.bytes > 0:
            parts.append(f"{self.bytes:,} bytes of copies")
        if self.bytes < 0:
            parts.append(f"an expectation of {-self.bytes:,} bytes that copies have already written")
        return " and ".join(parts) or "nothing"


def phase_at(m: Machine, offset: int) -> Phase:
    """Returns the phase of the mbarrier at a byte offset of shared memory."""
    return Phase.of(int(m.shared.load(np.array([offset], np.uint64), WIDTH)[0]))


def set_phase(m: Machine, offset: int, phase: Phase) -> None:
    m.shared.store(np.array([offset], np.uint64), WIDTH, np.array([phase.word], np.uint64))


def complete_bytes(m: Machine, offset: int, count: int) -> bool:
    """Report to an mbarrier that a copy has written `count` bytes. Return whether its phase ends."""
    phase = phase_at(m, offset)
    phase.bytes -= count
    ended = phase.ends()
    if ended:
        m.phase_ended(mbarrier_key(offset))
    set_phase(m, offset, phase)
    return ended
