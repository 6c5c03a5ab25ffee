"""The swizzle of shared memory: bulk copies and wgmma permute the 16-byte pieces of rows by the rows' numbers, so that
the pieces of a column are in different banks. Addresses are counted from the start of the block's memory.
"""

from __future__ import annotations

import numpy as np

_BITS = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}  # of the address of a piece that change, by the bytes of a row


def swizzled(address: np.ndarray, row_bytes: int) -> np.ndarray:
    """Returns where the byte at an address (integers) is stored. `row_bytes`: 0 (none), 32, 64 or 128."""
    return address ^ (address >> 3 & _BITS[row_bytes])
