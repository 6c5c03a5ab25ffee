"""Fragments of mma.sync.m16n8k16 (fp16, bf16): which lane holds which element, and the rows that ldmatrix loads.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "Warp-level matrix load
instruction: ldmatrix". The PTX ISA does not document the positions in wmma fragments. They depend on the
hardware, and no code may rely on them.

Lanes and values are ints or integer arrays. Two values of 16 bits share a register, the first in its
low half. A float32 occupies a whole register.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LANES = 32
# (lanes, values) -> (rows, columns), numbers or arrays of them
Numbers = int | np.ndarray
Position = Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]


def a_position(lane, value):
    """Returns (row, column) in A [16, 16] of a lane's value 0 .. 7."""
    group, within = lane // 4, lane % 4
    return group + value // 2 % 2 * 8, within * 2 + value % 2 + value // 4 * 8


def b_position(lane, value):
    """Returns (row, column) in B [16, 8] of a lane's value 0 .. 3."""
    group, within = lane // 4, lane % 4
    return within * 2 + value % 2 + value // 2 * 8, group


def c_position(lane, value):
    """Returns (row, column) in C and D [16, 8] of a lane's value 0 .. 3."""
    group, within = lane // 4, lane % 4
    return group + value // 2 * 8, within * 2 + value % 2


def ldmatrix_position(lane, value, transposed: bool = False):
    """Returns (row, column) within one 8 x 8 matrix of a lane's value 0 or 1 in that matrix's register."""
    row, column = lane // 4, lane % 4 * 2 + value
    return (column, row) if transposed else (row, column)


@dataclass(frozen=True)
class Fragment:
    """One operand of the instruction, distributed over a warp: each lane holds `values` of its elements."""

    name: str
    rows: int
    columns: int
    values: int
    per_register: int
    position: Position

    def holders(self) -> np.ndarray:
        """Returns int [rows, columns, 2]: the lane and the value that hold each element."""
        lane, value = np.divmod(np.arange(LANES * self.values), self.values)
        out = np.full((self.rows, self.columns, 2), -1)
        out[self.position(lane, value)] = np.stack([lane, value], axis=-1)
        return out


M16N8K16 = {
    f.name: f
    for f in (
        Fragment("A", 16, 16, 8, 2, a_position),
        Fragment("B", 16, 8, 4, 2, b_position),
        Fragment("C", 16, 8, 4, 1, c_position),
    )
}
