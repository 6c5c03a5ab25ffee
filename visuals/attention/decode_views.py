# fmt: off
"""What the stage shows of decoding: one block of the first kernel, which owns a part of the keys, and the block that merges row 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernels.attention import variants
from kernels.attention.shape import AttentionShape
from kernels.i18n import mark
from visuals.scene.compiler.view import SHARED_MEMORY, Buffer, Bytes, PerThread, Say, Shared, View, box, step
from visuals.scene.parts import Group

MAX_ROWS, MAX_KEYS, MAX_PARTS, MAX_COLS, FIRST_COLS = 4, 32, 8, 8, 4

SAME = mark("The same is repeated {last - first + 1} times.")

ONE_PART = {
    "q": step("unpack(q[row][n]",
        "Block {block} has part 0 of {parts}: up to {PART} keys from key {key_part} on. Its threads load the rows of [Q](input) that use these keys. Rows: {rows}. They multiply them by {factor}, so that weights are powers of 2.",
        to="q[row][n][e] *= factor", merge=True),
    "scores": step(("for (int i = 0; i < BATCH; ++i)", 0),
        Say("The block loads rows of [K](filter) once, for all its rows of [Q](input). Eight lanes share a key. The score of row 0 and key {key_part + p.at} is {p}. It is an exponent of 2.", "thread % 8 == 0 and p.at >= 0 and key_part + p.at < M", "p"),
        mark("The block loads further rows of [K](filter) in the same way, from key {key_part + first} on."),
        to="tile_p[row][first + i * STEP] = s[row]", fold=SAME),
    "max": step(("for (int n = lane; n < PART", 0),
        Say("A warp has row {row} of the block. The cap c limits each score to c · tanh(score / c), then the mask is applied. The largest number is [m](workspace) = {m}.", "cap > 0 and MASK > 0"),
        Say("A warp has row {row} of the block. The cap c limits each score to c · tanh(score / c). The factor of [Q](input) contains the division by c. The largest number is [m](workspace) = {m}.", "cap > 0"),
        Say("A warp has row {row} of the block. It adds the bias of the mask to each score. Keys that the row does not see get −∞. The largest number is [m](workspace) = {m}.", "MASK == 2"),
        Say("A warp has row {row} of the block. Keys that the mask hides get the score −∞. The largest number is [m](workspace) = {m}.", "MASK == 1"),
        Say("A warp has row {row} of the block. Keys that the row does not see get the score −∞. The largest number is [m](workspace) = {m}. No other part is needed.", "key_part < begin or key_part + PART > end"),
        mark("A warp has row {row} of the block and finds the largest score in this part: [m](workspace) = {m}. No other part is needed."),
        to="m = fmaxf(m, __shfl_xor_sync"),
    "weights": step(("for (int n = lane; n < PART", 1),
        "The warp replaces each score of row {row} by the weight 2^(score − [m](workspace)). Five exchanges add the sums of the lanes: [l](workspace) = {l}. Lane 0 stores both numbers of this part.",
        to="part_l[place * gridDim.x", merge=True),
    "values": step(("for (int i = 0; i < BATCH; ++i)", 2),
        Say("The block loads rows of [V](filter) and adds them with the weights. Thread 0 begins with row {key_part + first}. Its sum of column 0 for row 0 is now {o[0][0]}.", "key_part + first < M"),
        "Rows from {key_part + first} on are after the last key. They count as zero.",
        to="o[row][e] += tile_p[row][key]", fold=SAME),
    "sums": step("o[row][e] = lanes_sum(o[row][e]",
        "The lanes that have the same columns add their sums, and each warp stores the result in shared memory. Then all threads wait at a barrier.",
        to="sums[warp][row][col + e]", merge=True),
    "store": step("for (int i = threadIdx.x; i < ROWS * DP",
        "The threads add the sums of all warps. The sum [o](workspace) of part 0 is not yet divided by [l](workspace). Its column 0 in row 0 is {at(part_o.new, 0)}.",
        to="part_o[(place * gridDim.x"),
}
MERGE = {
    "largest": step("for (int part = 0; part < parts; ++part) m = fmaxf",
        "Second kernel: a block merges the parts of a row. Block 0 has row 0. The largest [m](workspace) of its {parts} parts is {m}."),
    "part": step("float rescale = exp2_(",
        "Part {part} gets the factor 2^([m](workspace) of the part − largest m) = 2^({part_m} − {base}) = {rescale}. Thread {thread} adds {rescale} · {part_l} to [l](workspace) = {l}, and {rescale} · {part_o} to [o](workspace) = {o}.",
        to="o += rescale * part_o", fold=SAME),
    "result": step("O[row * d + dim] =",
        Say("Row 0 sees no key of any part. Its result is 0.", "l == 0"),
        "Each thread divides its column: [O](output)[0, 0] = {o} / {l} = {O}. The parts take {numbers} numbers in memory, [K](filter) and [V](filter) take {cache}."),
}
OTHER_PARTS = mark("The other blocks ({others}) do the same with their parts. The rows see {seen} of {keys} keys. A block reads each key once for all its rows: {ROWS}.")
OTHER_ROWS = mark("The other blocks ({others}) merge the other rows in this way.")
ORDER = mark("step by step"), mark(
    "The picture follows the block of the first part, then the block that merges row 0. The other blocks of a kernel follow in one step. On a GPU "
    "all blocks of the first kernel run at once. The second kernel begins when all have ended. All values are those of the kernel in the emulator."
)
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st"), Bytes(mark("bytes to and from the block’s shared memory"), SHARED_MEMORY, "")


def view_of(s: AttentionShape, tiles: Mapping[str, int], heads: int) -> View:
    """Returns the view at a shape of one head of keys, one of `heads`, and tile sizes."""
    rows, parts, cols = variants.decode_rows(s), variants.parts(s, tiles), s.d if s.d <= MAX_COLS else FIRST_COLS
    block_rows, part, pitch = variants.block_rows(s, tiles), tiles["PART"], variants.decode_padded(s)
    R, P, first = min(block_rows, MAX_ROWS), min(parts, MAX_PARTS), s.begin_key(0)
    of_keys = (s.keys, s.d), range(first, min(first + MAX_KEYS, s.keys))
    of_rows, of_parts = ((rows, s.d), range(R)), (rows, parts)
    planes = Buffer("part_o", "workspace", "part_o", symbol="o", shape=(rows, parts, s.d), plane=mark("row"))
    if (R, P, cols) != planes.shape:
        planes = replace(planes, part=(range(P), range(cols)), plane="")
    warps = tiles["THREADS"] // 32
    tensors = (
        *(Buffer(n, role, n, shape=shape, part=(shown, range(cols))) for n, role, (shape, shown) in (("Q", "input", of_rows), ("K", "filter", of_keys), ("V", "filter", of_keys), ("O", "output", of_rows))),
        *(Buffer(f"part_{n}", "workspace", f"part_{n}", symbol=n, shape=of_parts, part=(range(R), range(P))) for n in "ml"), planes,
        Shared("p", "workspace", "tile_p", of="shared", dtype="f4", **box(0, R, min(part, MAX_KEYS), part)),
        Shared("sums", "workspace", "sums", mark("of warp 0") if warps > 1 else "", of="shared", dtype="f4", **box(block_rows * part, R, cols, pitch)),
        PerThread("rescale", "workspace", "rescale", threads=range(1)),
        *(PerThread(f"merged_{n}", "workspace", n, of=n, during=(kind,), threads=range(1)) for n, kind in (("m", "largest"), ("l", "part"))),
        PerThread("merged_o", "workspace", "o", of="o", during=("part",), threads=range(cols)),
    )
    return View(
        tensors,
        (
            Group((("Q", "K", "V", "O"),), "global", mark("global memory, one of {heads} heads of keys") if heads > 1 else mark("global memory")),
            Group((("p", "sums"),), "shared", mark("shared memory of the block")),
            Group((("part_m", "part_l"), ("part_o",)), "workspace", mark("workspace in global memory: one number or row for each part")),
            Group((("merged_m", "rescale", "merged_l", "merged_o"),), "registers", mark("registers of the block that merges row 0")),
        ),
        (ONE_PART, MERGE), MOVED, others=(OTHER_PARTS, OTHER_ROWS), order=ORDER,
        names={
            "heads": str(heads), "parts": str(parts), "rows": str(rows), "seen": str(s.seen_keys), "keys": str(s.keys),
            "numbers": str(heads * rows * parts * (s.d + 2)), "cache": str(2 * heads * s.seen_keys * s.d),
        },
    )
