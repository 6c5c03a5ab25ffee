"""Shared by both scenes of Winograd: the visible part of a convolution, its numbers as the CPU implementations
compute them, and each transform as sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import shape_rules
from kernels.conv.winograd_cpu import R
from kernels.ladders import find
from kernels.model.launch import ceil
from visuals.conv.inputs import Inputs
from visuals.conv.part import variation
from visuals.scene.parts import Sum

NONFUSED = "conv/winograd-nonfused"
SIDE = {2: 4, 4: 3, 6: 2}  # visible tiles along each side of a larger map
CHANNELS, FILTERS = {2: 3, 4: 2, 6: 1}, {2: 4, 4: 2, 6: 2}  # visible at most, by m


def why_not(s: ConvShape, m: int) -> str:
    """Returns the rules that forbid Winograd for a shape; "" if there are none."""
    return "; ".join(shape_rules(s, m))


def reads_per_pixel(s: ConvShape, m: int) -> float:
    """Returns how many tiles of F(m×m, 3×3) read a pixel, on average over a map."""

    def axis(extent: int, outputs: int, pad: int) -> float:
        start = np.arange(0, outputs, m) - pad
        end = np.minimum(start + m + R - 1, extent)
        return np.maximum(end - np.maximum(start, 0), 0).sum() / extent

    return axis(s.H, s.P, s.pad_h) * axis(s.W, s.Q, s.pad_w)


@dataclass(frozen=True)
class Part:
    """A part of image 0: tiles `down` x `across` from tile row `i0` and column `j0` on, the first C channels, K
    filters."""

    s: ConvShape
    m: int
    C: int
    K: int
    down: int
    across: int
    i0: int = 0
    j0: int = 0

    @property
    def T(self) -> int:
        return self.m + R - 1

    @property
    def tiles(self) -> int:
        return self.down * self.across

    @property
    def grid(self) -> tuple[int, int]:
        """Returns the number of tiles down and across the whole map."""
        return ceil(self.s.P, self.m), ceil(self.s.Q, self.m)

    @property
    def is_whole(self) -> bool:
        return (self.down, self.across) == self.grid

    @property
    def corner(self) -> tuple[int, int]:
        """Returns the row and column of the input where the first tile begins; negative in the padding."""
        return self.i0 * self.m - self.s.pad_h, self.j0 * self.m - self.s.pad_w

    @property
    def read_range(self) -> tuple[int, int]:
        """Returns the number of rows and columns from there that the tiles read."""
        return self.down * self.m + R - 1, self.across * self.m + R - 1

    @property
    def out(self) -> tuple[int, int, int, int]:
        """Returns first row, rows, first column, columns of the output under the tiles."""
        p, q = self.i0 * self.m, self.j0 * self.m
        return p, min(self.down * self.m, self.s.P - p), q, min(self.across * self.m, self.s.Q - q)

    @property
    def pixels(self) -> tuple[int, int, int, int]:
        """Returns first row, rows, first column, columns of the visible input: what the tiles read of it. If they
        read only padding, it is the nearest pixel."""
        (h, w), (rows, cols) = self.corner, self.read_range
        return *_inside(h, rows, self.s.H), *_inside(w, cols, self.s.W)

    @property
    def pad(self) -> tuple[int, int, int, int]:
        """Returns the rows and columns of zeros round the pixels: padding, and zeros beyond it."""
        (h, w), (rows, cols), (h1, H, w1, W) = self.corner, self.read_range, self.pixels
        return max(0, h1 - h), max(0, w1 - w), max(0, h + rows - h1 - H), max(0, w + cols - w1 - W)

    def at(self, tile: int) -> tuple[int, int]:
        """Returns the first output row and column of a tile of the part."""
        return (self.i0 + tile // self.across) * self.m, (self.j0 + tile % self.across) * self.m

    def number(self, tile: int) -> int:
        """Returns its number among all tiles of the launch."""
        i, j = self.at(tile)
        return i // self.m * self.grid[1] + j // self.m

    def window(self, tile: int) -> np.ndarray:
        """Returns int64[T*T]: the visible pixel under each position of a tile in channel 0, -1 if it reads a
        zero."""
        (p, q), (h1, _, w1, W) = self.at(tile), self.pixels
        rows, cols = (np.arange(self.T) + start for start in (p - self.s.pad_h, q - self.s.pad_w))
        inside = ((rows >= 0) & (rows < self.s.H))[:, None] & ((cols >= 0) & (cols < self.s.W))
        return np.where(inside, (rows - h1)[:, None] * W + cols - w1, -1).ravel()

    def outputs(self, tile: int) -> np.ndarray:
        """Returns int64[m*m]: the visible output under each position of a tile in map 0, -1 if it is outside the
        map."""
        (p, q), (p1, P, q1, Q) = self.at(tile), self.out
        rows, cols = np.arange(self.m) + p - p1, np.arange(self.m) + q - q1
        return np.where((rows < P)[:, None] & (cols < Q), rows[:, None] * Q + cols, -1).ravel()


def _inside(first: int, count: int, size: int) -> tuple[int, int]:
    start = min(max(0, first), size - 1)
    return start, max(1, min(size, first + count) - start)


def part_of(s: ConvShape, m: int, picture: np.ndarray | None = None) -> Part:
    """Returns all tiles if they are few. Otherwise returns the block of tiles where `picture` [H, W] varies most.
    ValueError if `why_not` returns a reason."""
    if reason := why_not(s, m):
        raise ValueError(reason)
    down, across = (ceil(n, m) for n in (s.P, s.Q))
    rows, cols = min(down, SIDE[m]), min(across, SIDE[m])
    parts = [
        Part(s, m, min(s.C, CHANNELS[m]), min(s.K, FILTERS[m]), rows, cols, i, j)
        for i in range(0, down - rows + 1, rows)
        for j in range(0, across - cols + 1, cols)
    ]

    if picture is None:
        return parts[0]

    def picture_variation(part: Part) -> tuple[float, float]:
        h, H, w, W = part.pixels
        return variation(picture[h : h + H, w : w + W])

    return max(parts, key=picture_variation)


@dataclass(frozen=True)
class Numbers:
    """float32 arrays of a part, as the CPU implementations compute them: x [C, H, W] (the visible pixels), w [K,
    C, 3, 3], U [T*T, C, K], V [T*T, C, tiles], Z [T*T, K, tiles] over all channels, y [K, P, Q]. U and V have
    only the visible channels. Rows of U, V and Z are padded with zeros to a multiple of four."""

    x: np.ndarray
    w: np.ndarray
    U: np.ndarray
    V: np.ndarray
    Z: np.ndarray
    y: np.ndarray


def numbers(part: Part, inputs: Inputs) -> Numbers:
    """Returns the numbers of a part. A picture has few different planes: the pixels are cut out before they are
    repeated for C channels."""
    s, (h, H, w, W) = part.s, part.pixels
    planes = inputs.planes()[:, h : h + H, w : w + W]
    return computed(part, planes[np.arange(s.C) % len(planes)], inputs.w(part.K, s.C))


def computed(part: Part, x: np.ndarray, w: np.ndarray) -> Numbers:
    """Runs the launches of winograd-nonfused on the CPU, on the pixels under the part: x [C, H, W], all channels
    of the visible pixels, w [K, C, 3, 3], all channels of the visible filters."""
    s, (rows, cols), (h1, _, w1, _) = part.s, part.read_range, part.pixels
    h, w_ = (np.arange(n) + start for n, start in zip((rows, cols), part.corner, strict=True))
    inside_h, inside_w = (h >= 0) & (h < s.H), (w_ >= 0) & (w_ < s.W)
    padded = np.zeros((1, s.C, rows, cols), np.float32)
    inside = np.ix_(np.arange(s.C), np.flatnonzero(inside_h), np.flatnonzero(inside_w))
    padded[0][inside] = x[np.ix_(np.arange(s.C), h[inside_h] - h1, w_[inside_w] - w1)]
    sub = ConvShape(1, s.C, rows, cols, part.K, R, R, mode=s.mode)
    rung = find(NONFUSED)
    program = rung.build(sub, rung.default_tiles | {"M": part.m})
    arrays = {b.name: np.zeros(b.shape, b.dtype) for b in program.buffers}
    arrays |= {"x": padded, "w": np.ascontiguousarray(w[: part.K], np.float32)}
    for step in program.launches:
        step.cpu(*(arrays[a] if isinstance(a, str) else a for a in step.args))
    _, P, _, Q = part.out
    C = slice(part.C)
    # The kernel may sum the channels in parts.
    sums = arrays["Z"].reshape(-1, part.T * part.T, *arrays["Z"].shape[1:]).sum(axis=0)
    return Numbers(
        np.asarray(x[C], np.float32),
        arrays["w"][:, C],
        arrays["U"][:, C],
        arrays["V"][:, C],
        sums,
        arrays["y"][0, :, :P, :Q],
    )


# -- transforms as sums --------------------------------------------------------------------------------
Terms = tuple[np.ndarray, np.ndarray]  # cells (flat positions of d), factors


def terms(X: winograd_matrices.Matrix, flip: bool = False) -> list[Terms]:
    """Returns, for each cell of X d X^T in flat order, the positions of d that it sums and their factors, without
    zeros. `flip` reads d from back to front."""
    matrix = np.array(X, object).astype(np.float64)
    both = np.kron(matrix, matrix)  # row (i, j), column (a, b): X[i, a] * X[j, b]
    found = []
    for row in both:
        cells = np.flatnonzero(row)
        found.append((both.shape[1] - 1 - cells if flip else cells, row[cells].astype(np.float32)))
    return found


def sum_of(out: str, right: str, entries: Sequence[Terms], left: str = "", rest: str = "") -> Sum:
    """Returns the Sum whose cell i has the terms entries[i]."""
    start = np.cumsum([0, *(len(cells) for cells, _ in entries)])
    cells, factors = (np.concatenate(column) for column in zip(*entries, strict=True))
    return Sum(out, right, start, cells.astype(int), factors.astype(int) if left else factors, left, rest)


def output_terms(part: Part, z_cell) -> list[Terms]:
    """Returns, for each visible output, the cells of Z that its tile's A^T Z A sums. z_cell(position, filter,
    tile) is the cell of Z."""
    inverse_terms, (_, P, _, Q) = terms(derived(part).AT), part.out
    found: dict[int, Terms] = {}
    for tile in range(part.tiles):
        for position, cell in enumerate(part.outputs(tile)):
            if cell >= 0:
                positions, factors = inverse_terms[position]
                for k in range(part.K):
                    found[k * P * Q + cell] = (z_cell(positions, k, tile), factors)
    return [found[cell] for cell in range(part.K * P * Q)]


def derived(part: Part) -> winograd_matrices.Transforms:
    return winograd_matrices.derive(part.m, R)


@dataclass(frozen=True)
class Operations:
    """The operations of the transforms of one tile. The filter's are executed once per filter and channel, the
    input's once per channel, the output's once per filter."""

    filter: winograd_matrices.Count
    input: winograd_matrices.Count
    output: winograd_matrices.Count


def operations(m: int) -> Operations:
    t = winograd_matrices.derive(m, R)
    return Operations(*(winograd_matrices.operations_2d(X) for X in (t.G, t.BT, t.AT)))
