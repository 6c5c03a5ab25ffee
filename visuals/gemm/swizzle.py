"""Eight rows of a tile of A in shared memory: where the copy engine writes each 16 bytes, and the passes of a read.

A scene of the hardware, made by hand: no kernel runs. A cell is a piece of 16 bytes, eight halves of a row. The addresses
are those of the emulator's copy engine and wgmma (kernels/engines/emulator/swizzle.py), with the swizzle of 128 bytes
that the kernels use, or without.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from kernels.engines.emulator.bulk_copies import PIECE
from kernels.engines.emulator.swizzle import swizzled
from kernels.gemm import hopper
from kernels.gemm.shape import GemmShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.launch import WARP
from kernels.model.program import Launch
from visuals.scene import why_not as scene_why_not
from visuals.scene.parts import Annotation, Captions, Group, Lanes, Reading, Tensor, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.requests import WORD, bank_wavefronts
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

RUNGS = tuple(rung.name for rung in hopper.RUNGS)
SWIZZLES = (hopper.SWIZZLE, 0)  # bytes; 0: none
ROWS = 8  # that repeat: the next eight rows have the same columns, 1,024 bytes on
ROW_BYTES = 128
PIECES = ROW_BYTES // PIECE  # of a row: as many as there are groups of four banks
READ = 2  # pieces of each row that one product reads: k 0 to 15
START, ROW, REST, ONE, TOGETHER = range(5)  # kinds of steps
MARKS = (
    re.compile(r"arrive_expecting\(full"),
    re.compile(r"load_box\(tile_a"),
    re.compile(r"wait\(full"),
    *(re.compile(r"multiply\(sum"),) * 2,
)
ORDER = mark("row by row, then pass by pass")
NOTE = mark(
    "The picture shows one row per step, then one pass per step. The copy engine writes in an order of its own. How the "
    "tensor cores read is not documented: the passes follow from the banks, which deliver 4 bytes each in a pass."
)


def why_not(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    return scene_why_not.why_not(rung, shape, tiles, RUNGS)


def piece_addresses(swizzle: int) -> np.ndarray:
    """Returns the byte at which each piece of the rows is stored in the tile, int64[ROWS, PIECES]."""
    at = ROW_BYTES * np.arange(ROWS)[:, None] + PIECE * np.arange(PIECES)
    return swizzled(at, swizzle)


def read_passes(swizzle: int) -> list[list[tuple[int, int, int]]]:
    """Returns the passes of the first product's reads of these rows: of each pass the pieces (row, piece, column of the
    tile) that it delivers. One read is one piece of each row, a core matrix of wgmma."""
    found = []
    for piece in range(READ):
        byte = np.zeros(WARP, np.int64)
        byte[:ROWS] = piece_addresses(swizzle)[:, piece]
        wavefront, bank, row = bank_wavefronts(byte, (1 << ROWS) - 1, PIECE)
        for n in range(int(wavefront.max()) + 1):
            first = (wavefront == n) & (bank % (PIECE // WORD) == 0)  # a piece is in four banks
            column = bank[first] * WORD // PIECE
            found.append([(int(r), piece, int(c)) for r, c in zip(row[first], column, strict=True)])
    return found


def swizzle_scene(shape: GemmShape, rung: str, tiles: Mapping[str, int], swizzle: int = hopper.SWIZZLE) -> Scene:
    """Returns the scene of the first rows of block 0's first tile of A. RuleError if the rung cannot run the shape."""
    found = find(rung)
    (launch,) = found.build(shape, found.check(shape, tiles)).launches
    passes, expected = read_passes(swizzle), tile_bytes(launch)
    rows, cols = min(ROWS, shape.M), min(PIECES, -(-shape.K * ELEMENT_BYTES[shape.dtype] // PIECE))
    row, piece = np.divmod(np.arange(ROWS * PIECES), PIECES)
    source = np.where((row < rows) & (piece < cols), row * cols + piece, -1)
    cells = (piece_addresses(swizzle) // PIECE).ravel()
    kind = np.array([START, *[ROW] * ROWS, REST, *(TOGETHER if len(p) > 1 else ONE for p in passes)])
    steps = len(kind)
    first_pass = steps - len(passes)
    delivered = [(n, r * PIECES + p, n * PIECES + column) for n, one in enumerate(passes) for r, p, column in one]
    n, read, out = np.array(delivered).T
    return Scene(
        key=f"swizzle {swizzle} {rung} {shape} {launch.block}",
        title=tr("one tile of A, with the swizzle") if swizzle else tr("one tile of A, without swizzle"),
        tensors=(
            Tensor(
                "A",
                "A",
                "A",
                "input",
                1,
                rows,
                cols,
                (10.0 * np.arange(rows)[:, None] + np.arange(cols)).ravel(),
                note=tr("a cell: 16 bytes, 8 values of k"),
                partial=True,
            ),
            Tensor("tile_a", "tile_a", "tile_a", "input", 1, ROWS, PIECES, note=tr("column g: banks 4g to 4g + 3")),
            Tensor("passes", "passes", tr("passes"), "input", 1, len(passes), PIECES, note=tr("one row per pass")),
        ),
        groups=(
            Group((("A",),), "global", tr("global memory, rows 0 to {last}", last=rows - 1)),
            Group((("tile_a",),), "shared", tr("shared memory, 8 rows of 128 bytes")),
            Group((("passes",),), "shared", tr("what the 32 banks deliver to the tensor cores")),
        ),
        steps=steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(NOTE),
        writes=(
            Write("tile_a", 1 + row, source="A", index=source, cells=cells),
            Write("passes", first_pass + n, source="tile_a", index=cells[read], cells=out),
        ),
        reads=(
            read_per_step("tile_a", [[]] * first_pass + [[cells[r * PIECES + p] for r, p, _ in one] for one in passes]),
        ),
        readings=_readings(passes, first_pass, expected),
        annotations=(_places(cells, row, piece),),
        captions=_captions(kind, passes, expected, launch, swizzle),
        source=source_of(launch.source, MARKS, kind, detail=resources(launch)),
        lanes=Lanes(np.where(kind == START, copying_thread(launch) // WARP, -1), (kind == START).astype(np.uint32)),
    )


def copying_thread(launch: Launch) -> int:
    """Returns the thread of a block that starts the copies: the first one of its last warpgroup, the producer; of its first
    warpgroup if every warpgroup multiplies."""
    return 0 if launch.entry == "wgmma" else launch.block[0] - hopper.WARPGROUP


def tile_bytes(launch: Launch) -> int:
    """Returns the bytes of one tile of A and one of B, which one phase of the barrier expects."""
    defines = dict(launch.defines)
    return 2 * hopper.BK * (defines["BM"] + defines["BN"])


def _readings(passes: list, first_pass: int, expected: int) -> tuple[Reading, ...]:
    counted = np.minimum(np.arange(first_pass), ROWS) * ROW_BYTES
    counted[-1] = expected
    done = np.arange(1, len(passes) + 1)
    reads = np.cumsum([one[0][1] != before for one, before in zip(passes, _pieces_before(passes), strict=True)])
    padded = np.zeros(first_pass, int)
    return (
        Reading(
            tr("bytes that the barrier has counted"), np.append(counted, np.full(len(passes), expected)), "predicted"
        ),
        Reading(tr("passes"), np.append(padded, done), "predicted"),
        Reading(tr("bank conflicts"), np.append(padded, done - reads), "predicted"),
    )


def _pieces_before(passes: list) -> list[int]:
    """Returns the piece that the pass before each pass delivers, -1 before the first."""
    return [-1, *(one[0][1] for one in passes[:-1])]


def conflicts(swizzle: int) -> int:
    """Returns the passes of the first product's reads of eight rows beyond one for each read."""
    return len(read_passes(swizzle)) - READ


def _places(cells: np.ndarray, row: np.ndarray, piece: np.ndarray) -> Annotation:
    """Returns what each cell of the tile holds and in which banks it is."""
    args = np.zeros((len(cells), 6), int)
    column = cells % PIECES
    args[cells] = np.column_stack([row, 8 * piece, 8 * piece + 7, PIECE * cells, 4 * column, 4 * column + 3])
    text = tr("Row {0} of A, k {1} to {2}. It begins at byte {3} of the tile and is in banks {4} to {5}.")
    return Annotation("tile_a", Captions((text,), np.zeros(len(cells), int), args))


# -- captions --------------------------------------------------------------------------------------
def _captions(kind: np.ndarray, passes: list, expected: int, launch: Launch, swizzle: int) -> Captions:
    args = np.zeros((len(kind), 6), int)
    args[0, :2] = copying_thread(launch), dict(launch.defines)["BM"]
    args[1 : 1 + ROWS, 0] = np.arange(ROWS)
    for n, one in enumerate(passes):
        r, piece, column = one[0]
        args[len(kind) - len(passes) + n] = n + 1, r, 8 * piece, 8 * piece + 7, 4 * column, 4 * column + 3
    return Captions(_templates(swizzle, expected), kind, args)


def _templates(swizzle: int, expected: int) -> tuple[str, ...]:
    size = decimal(f"{expected:,}")
    start = (
        tr(
            "Thread {0} starts the copy of one box of [A](input): {1} rows, k 0 to 63. It sets the barrier to expect {bytes} "
            "bytes, with those of [B](filter).",
            bytes=size,
        ),
        "" if swizzle else tr("Here the box is stored without swizzle. No kernel of this ladder does that."),
    )
    place = tr("Piece j goes to column j XOR {0}.") if swizzle else tr("Piece j goes to column j, in every row.")
    return (
        " ".join(filter(None, start)),
        " ".join((tr("Row {0} of [A](input) arrives: 128 bytes, 8 pieces of 16 bytes."), place)),
        tr(
            "The other rows and the boxes of [B](filter) arrive in the same way. The barrier has counted {bytes} bytes. "
            "Its phase ends, and the threads that wait go on.",
            bytes=size,
        ),
        tr(
            "Pass {0}: row {1}, k {2} to {3}. All 8 rows have this piece in banks {4} to {5}, so one pass delivers one piece."
        ),
        tr("Pass {0}: k {2} to {3} of all 8 rows. The 8 pieces are in different banks, so one pass delivers them all."),
    )
