"""The gradient of the filters by Winograd's algorithm: the forward pass's transforms, each on its other side.

Forward, Y = A^T [(G g G^T) * (B^T d B)] A, summed over maps. So dg = G^T [(A dY A^T) * (B^T d B)] G, summed over tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kernels.conv import winograd, winograd_cpu, winograd_matrices
from kernels.conv.backward import common
from kernels.conv.backward.dweight import MAX_TERMS, SMS, buffers
from kernels.conv.common import struct
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.model.launch import ceil, launch
from kernels.model.program import WORKSPACE, Buffer, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, MAX_STATIC_SHARED, index_rules, max_rules
from kernels.model.rung import Cost

GAP = 4  # floats, as in 32_dweight_winograd_product.cu
BLOCKS_PER_SM = 8  # of the product: the sum is cut into parts until so many are there


def row_of(s: ConvShape, m: int) -> int:
    """Returns the elements of a row: all tiles, a multiple of 4."""
    return winograd.round_up_to_4(winograd.tiles_of(s, m))


def terms_of_part(s: ConvShape, tiles: Tiles) -> int:
    """Returns how many tiles a block adds, a multiple of BK: no more than MAX_TERMS, and few enough that each SM of an H200
    has work."""
    row, BK = row_of(s, tiles["M"]), tiles["BK"]
    blocks = ceil(s.C, tiles["BN"]) * ceil(s.K, tiles["BM"]) * winograd.positions(tiles["M"])
    parts = max(ceil(row, MAX_TERMS), min(ceil(BLOCKS_PER_SM * SMS, blocks), ceil(row, 8 * BK)))
    return ceil(ceil(row, parts), BK) * BK


def build(s: ConvShape, tiles: Tiles) -> Program:
    """Returns a program with U [T*T, K, fours(tiles)], V [T*T, C, fours(tiles)], Z [parts, T*T, K, C]."""
    m, block, args = tiles["M"], tiles["BLOCK"], struct(s)
    count, row, terms = winograd.positions(m), row_of(s, m), terms_of_part(s, tiles)
    parts = ceil(row, terms)
    U, V = Buffer("U", WORKSPACE, (count, s.K, row)), Buffer("V", WORKSPACE, (count, s.C, row))
    Z = Buffer("Z", WORKSPACE, (parts, count, s.K, s.C))
    defines = {"M": m, "BLOCK": block}
    steps = (
        launch(
            "conv/31_dweight_winograd_gradient.cu",
            (ceil(s.K * row, block),),
            block,
            ("dy", "U", args),
            gradient(m),
            defines,
        ),
        launch(
            "conv/09_winograd_input.cu",
            (ceil(s.C * row, block),),
            block,
            ("x", "V", args),
            winograd_cpu.inputs(m),
            defines,
        ),
        launch(
            "conv/32_dweight_winograd_product.cu",
            (ceil(s.C, tiles["BN"]), ceil(s.K, tiles["BM"]), count * parts),
            winograd.threads(tiles),
            ("U", "V", "Z", args, np.int32(terms)),
            product,
            {name: tiles[name] for name in ("M", "BM", "BN", "BK", "STAGES")},
        ),
        launch(
            "conv/33_dweight_winograd_filter.cu",
            (ceil(s.K * s.C, block),),
            block,
            ("Z", "dw", args, np.int32(parts)),
            filters(m),
            defines,
        ),
    )
    return Program((*buffers(s), U, V, Z), steps)


def shared_bytes(tiles: Tiles) -> int:
    """Returns the bytes of shared memory of the product, whose rows have a gap."""
    return 4 * tiles["STAGES"] * tiles["BK"] * (tiles["BM"] + tiles["BN"] + 2 * GAP)


# -- in NumPy ------------------------------------------------------------------------------------------
def gradient_tiles(dy: np.ndarray, m: int) -> np.ndarray:
    """Returns the tiles of dy [N, K, P, Q], padded with zeros: [N, K, down, across, m, m]."""
    N, K, P, Q = dy.shape
    down, across = -(-P // m), -(-Q // m)
    padded = np.pad(dy, ((0, 0), (0, 0), (0, down * m - P), (0, across * m - Q)))
    return padded.reshape(N, K, down, m, across, m).swapaxes(3, 4)


def gradient(m: int):
    def dweight_winograd_gradient(dy: np.ndarray, U: np.ndarray, s: np.void) -> None:
        """Compute U [T*T, K, fours(tiles)] = A dy A^T of every tile of dy [N, K, P, Q]."""
        AT, _, _ = winograd_matrices.derive(m, winograd.R).arrays(dy.dtype)
        u = winograd_cpu.transform_2d(AT.T, gradient_tiles(dy, m))  # [T, T, N, K, down, across]
        u = u.swapaxes(2, 3).reshape(*U.shape[:2], -1)
        U[:, :, u.shape[2] :] = 0
        U[:, :, : u.shape[2]] = u

    return dweight_winograd_gradient


def product(U: np.ndarray, V: np.ndarray, Z: np.ndarray, s: np.void, terms: np.int32) -> None:
    """Compute Z[part, p] = U[p] V[p]^T over the tiles of a part, with NumPy's BLAS."""
    for part in range(len(Z)):
        tiles = slice(part * int(terms), (part + 1) * int(terms))
        np.matmul(U[:, :, tiles], V[:, :, tiles].swapaxes(1, 2), out=Z[part])


def filters(m: int):
    def dweight_winograd_filter(Z: np.ndarray, dw: np.ndarray, s: np.void, parts: np.int32) -> None:
        """Compute dw [K, C, 3, 3] = G^T z G, z [T*T, K, C] the sum of the parts."""
        _, G, _ = winograd_matrices.derive(m, winograd.R).arrays(Z.dtype)
        dw[...] = _taps(Z.sum(axis=0), G, bool(s["flip"]))

    return dweight_winograd_filter


def _taps(z: np.ndarray, G: np.ndarray, flip: bool) -> np.ndarray:
    """Returns [K, C, 3, 3] of z [T*T, K, C]."""
    side = len(G)
    taps = winograd_cpu.transform_2d(G.T, np.moveaxis(z.reshape(side, side, *z.shape[1:]), (0, 1), (-2, -1)))
    taps = np.moveaxis(taps, (0, 1), (-2, -1))
    return taps[:, :, ::-1, ::-1] if flip else taps


# -- rules and cost -------------------------------------------------------------------------------------
def rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from common.plain_rules(s, tiles)
    yield from winograd.shape_rules(s, tiles["M"])
    row, margin = row_of(s, tiles["M"]), tiles["BLOCK"]
    for name, maps in (("C", s.C), ("K", s.K)):
        yield from index_rules({tr("{name} × output tiles", name=name): maps * row}, margin)
    yield from index_rules({"K*C*9": 9 * s.K * s.C}, margin)
    yield from max_rules(tr("bytes of shared memory"), shared_bytes(tiles), MAX_STATIC_SHARED)
    yield from max_rules(tr("K/BM blocks (grid.y)"), ceil(s.K, tiles["BM"]), MAX_GRID_YZ)
    parts = ceil(row, terms_of_part(s, tiles))
    yield from max_rules(tr("positions × parts (grid.z)"), winograd.positions(tiles["M"]) * parts, MAX_GRID_YZ)


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs executed, and bytes as for every rung of the ladder. The transforms have as many operations as those
    of the forward pass, whose matrices they are."""
    m = dict(program.launch().defines)["M"]
    tensors = common.cost(s, program)
    return Cost(winograd.flops(s, m), tensors.bytes, tensors.workspace_bytes)


def scale(s: ConvShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the error scale, float64 [K, C, 3, 3]: the algorithm on absolute values."""
    m = tiles["M"]
    AT, G, BT = (np.abs(X) for X in winograd_matrices.derive(m, winograd.R).arrays("float64"))
    z = np.zeros((len(BT) ** 2, s.K, s.C))
    for x, dy in zip(inputs["x"], inputs["dy"], strict=True):  # image by image: the workspace is large
        d = winograd_cpu.input_tiles(np.abs(x[None]).astype("float64"), m, s.pad, (s.P, s.Q))[0]
        v = winograd_cpu.transform_2d(BT, d).reshape(len(BT) ** 2, s.C, -1)
        u = winograd_cpu.transform_2d(AT.T, gradient_tiles(np.abs(dy[None]).astype("float64"), m)[0])
        z = z + u.reshape(len(BT) ** 2, s.K, -1) @ v.swapaxes(1, 2)
    return _taps(z, G, s.flip)
