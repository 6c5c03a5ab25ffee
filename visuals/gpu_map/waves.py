"""Blocks of a launch on the SMs of a GPU, in waves. Pure arithmetic.

If all blocks take equally long, as many as fit run at once, then the next: a wave. Within a wave, block after block goes to
the next SM. A GPU gives a new block to an SM as soon as one of its blocks ends, in an order that is not documented.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_SINGLE = 5  # waves that are all shown; of more, the first two and the last


def places(sms: int, resident: int) -> int:
    """Returns how many blocks run at once."""
    return sms * resident


def wave_count(blocks: int, sms: int, resident: int) -> int:
    """Returns the number of waves of a launch."""
    return -(-blocks // places(sms, resident))


def wave_of(blocks: np.ndarray, sms: int, resident: int) -> np.ndarray:
    """Returns the wave of each block, from 0. blocks: integer, the numbers of blocks."""
    return np.asarray(blocks) // places(sms, resident)


def sm_of(blocks: np.ndarray, sms: int, resident: int) -> np.ndarray:
    """Returns the SM of each block. blocks: integer, the numbers of blocks."""
    return np.asarray(blocks) % places(sms, resident) % sms


@dataclass(frozen=True)
class Waves:
    """Waves `first` to `last` (from 0) of a launch, shown in one step; its blocks are `start` to `stop` - 1."""

    first: int
    last: int
    start: int
    stop: int
    on_sm: np.ndarray  # int64[sms]: the blocks on each SM in the last of these waves

    @property
    def busy(self) -> int:
        """Returns how many SMs have a block in the last of these waves."""
        return int(np.count_nonzero(self.on_sm))


def steps(blocks: int, sms: int, resident: int) -> list[Waves]:
    """Returns the waves of a launch as steps: each alone if there are few, else those in the middle as one."""
    count, size = wave_count(blocks, sms, resident), places(sms, resident)
    if count <= MAX_SINGLE:
        ranges = [(n, n) for n in range(count)]
    else:
        ranges = [(0, 0), (1, 1), (2, count - 2), (count - 1, count - 1)]
    return [_waves(a, b, min(blocks, (b + 1) * size), blocks, sms, resident) for a, b in ranges]


def all_waves(blocks: int, sms: int, resident: int) -> Waves:
    """Returns all waves of a launch as one step."""
    return _waves(0, wave_count(blocks, sms, resident) - 1, blocks, blocks, sms, resident)


def _waves(first: int, last: int, stop: int, blocks: int, sms: int, resident: int) -> Waves:
    size = places(sms, resident)
    of_last = np.arange(last * size, stop)
    on_sm = np.bincount(sm_of(of_last, sms, resident), minlength=sms)
    return Waves(first, last, first * size, stop, on_sm)


# -- a grid of blocks as cells -----------------------------------------------------------------------
@dataclass(frozen=True)
class Cells:
    """A grid of blocks drawn as rows x cols cells. Cell i stands for blocks i * each to (i + 1) * each - 1."""

    rows: int
    cols: int
    each: int

    def last_block(self, blocks: int) -> np.ndarray:
        """Returns the last block of each cell, int64[used]; further cells have none."""
        return np.minimum((np.arange(-(-blocks // self.each)) + 1) * self.each, blocks) - 1


def cells_of(grid: tuple[int, int, int], most: int) -> Cells:
    """Returns the cells of a grid: one for each block if these are few, else each for several neighbours, row by row."""
    x, y, z = grid
    if x * y * z <= most and max(x, y * z) <= 4 * most**0.5:
        return Cells(y * z, x, 1)
    blocks = x * y * z
    each = -(-blocks // most)
    used = -(-blocks // each)
    cols = min(used, max(1, int(np.ceil(used**0.5))))
    return Cells(-(-used // cols), cols, each)
