# fmt: off
"""What the stage shows of each kernel of threads and memory: who computes what, and the sectors and wavefronts of an access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, Number, PerThread, Say, Shared, View, step
from visuals.scene.parts import Group

GLOBAL = mark("global memory")
WARP_BY_WARP, WARP_NOTE = mark("warp by warp"), mark("The picture shows one warp after the other. On a GPU the scheduler chooses the order of the warps, and other blocks run on other SMs at the same time.")
WARPS: dict[str, Any] = {"group": 32, "step_name": mark("warp"), "order": (WARP_BY_WARP, WARP_NOTE)}

# -- add -----------------------------------------------------------------------------------------------
OWNERS = {"of_block": ("block", mark("block number")), "of_warp": ("warp", mark("warp number")), "of_lane": ("lane", mark("lane number"))}
SECTORS = "distinct(C.at // 8)"
MOVED = mark("Each active lane reads one float of [A](input) and one of [B](filter), and writes one of [C](output). Active lanes: {active}. Sectors (32 bytes) per matrix: {distinct(C.at // 8)}. Fewest possible: {(active + 7) // 8}.")
IDLE = mark("Block ({block_x}, {block_y}), warp {warp}: its lanes have no elements. They return at the bounds check.")


def _add(first: str, **names: str) -> View:
    return View(
        (Buffer("A", "input", "A"), Buffer("B", "filter", "B"), Buffer("C", "output", "C = A + B"),
         *(PerThread(name, "workspace", title, value=value, during=("add",)) for name, (value, title) in OWNERS.items())),
        (Group((("A", "B", "C"),), "global", mark("global memory, row by row"), table=True),
         Group((tuple(OWNERS),), "registers", mark("which thread adds each element"), table=True)),
        ({
            "test": step("if (", Say("", "any(inside)"), IDLE),
            "add": step("C[i] =", MOVED, lead=first),
        },),
        (Number(mark("elements added"), "active", "", ("add",), adds=True),
         Number(mark("sectors read"), f"2 * {SECTORS}", "", ("add",), adds=True),
         Number(mark("sectors written"), SECTORS, "", ("add",), adds=True)),
        names={"block_x": "block % across", "block_y": "block // across", **names}, **WARPS,
    )


VECTOR = _add(mark("Block {block}, warp {warp}: its first thread has i = {block} × {size} + {thread} = {i}."), inside="i < n")
MATRIX = _add(mark("Block ({block_x}, {block_y}), warp {warp}: its first active thread has row {row} and column {col}, so i = {row} × {N} + {col} = {i}."), inside="(row < M) * (col < N)")

# -- stride --------------------------------------------------------------------------------------------
COPY = View(
    (Buffer("x", "input", mark("input"), mark("one row: 128 bytes")), Buffer("y", "output", mark("output")),
     PerThread("s", "input", mark("used floats of each sector"), mark("one row: 32 bytes"), value="x", place=("0", "x.at % 8"), part=(range(1), range(8)), during=("load",), rows=("load",)),
     PerThread("v", "input", mark("one float per lane"), value="x", place=("0", "lane"), part=(range(1), range(32)), during=("load",))),
    (
        Group((("x",), ("y",)), "global", GLOBAL, aligned=True),  # a row of x is one piece: the 128 bytes of its note
        Group((("s",),), "shared", mark("sectors in the SM's L1 cache")),
        Group((("v",),), "registers", mark("registers of lanes 0 to 31")),
    ),
    ({
        "load": step("output[element] = input",
            Say("Sector {part} arrives: bytes {32 * (x.at // 8)} to {32 * (x.at // 8) + 31} of [x](input). Only lane {lane} uses a float of it. The other 28 of its 32 bytes are not used.", "active == 1"),
            mark("Sector {part} arrives: bytes {32 * (x.at // 8)} to {32 * (x.at // 8) + 31} of [x](input). {active} lanes, {min(lane)} to {max(lane)}, use one float each. The sector holds 8 floats."),
            apart="x.at // 8", op="ld"),
        "store": step("output[element] = input",
            "The load fetched {distinct(element * stride // 8)} sectors ({32 * distinct(element * stride // 8)} bytes). The warp uses {4 * active} of these bytes, {100 * active / (8 * distinct(element * stride // 8))} %. Its store to [y](output) is coalesced: it needs {distinct(y.at // 8)} sectors.", op="st"),
    },),
    (Number(mark("sectors fetched"), "distinct(x.at // 8)", "", ("load",), adds=True),
     Number(mark("bytes fetched"), "32 * distinct(x.at // 8)", "", ("load",), adds=True),
     Bytes(mark("bytes used"), "x", "ld")),
    order=(mark("sector by sector"), mark("The picture shows one sector per step, by address. One instruction requests all sectors. The hardware may fetch them in another order. The number of sectors is counted, their order is not.")),
    arrange=lambda recording, visits: [replace(visit, kind=kind) for visit in visits for kind in ("load", "store")],
)

# -- banks ---------------------------------------------------------------------------------------------
READ = View(
    (Buffer("y", "output", mark("output")),
     Shared("m", "input", mark("table, one cell per word"), mark("word w is in bank w mod 32"), of="tile"),
     PerThread("g", "input", mark("passes"), mark("one row per pass, one column per bank"), value="m", place=("0", "where(visit == 1, tile.at % 32, -1)"), part=(range(1), range(32)), during=("read",), rows=("read",)),
     PerThread("v", "workspace", mark("sum of each lane"), of="sum", threads=range(32), during=("read",))),
    (
        Group((("m",), ("g",)), "shared", mark("shared memory of the block, 32 banks")),
        Group((("v",),), "registers", mark("registers of lanes 0 to 31")),
        Group((("y",),), "global", GLOBAL),
    ),
    ({
        "copy": step("tile[e / COLS]",
            Say("The block copies the [table](input) into shared memory. Only the rows of this read are shown. One unused word (padding) follows each row.", "PAD == 1"),
            mark("The block copies the [table](input) into shared memory. Only the rows of this read are shown."),
            merge=True),
        "read": step("sum += tile",
            Say("", "visit > 2"),
            Say("The kernel repeats the read, one row further each time: {visits} reads in all. All lanes move by the same distance, so the conflicts stay the same.", "visit == 2"),
            Say("Each lane requests a word. No bank must deliver two different words, so one pass is enough. Lane {lane} reads word {tile.at}. The bank of this word is {tile.at} mod 32 = {tile.at % 32}.", "parts == 1"),
            Say("Each lane requests a word. One bank must deliver {parts} of these words, so the read takes {parts} passes. In the first, lane {lane} reads word {tile.at}. The bank of this word is {tile.at} mod 32 = {tile.at % 32}.", "part == 1"),
            Say("Pass {part} of {parts}: one lane gets a word. Lane {lane} reads word {tile.at}. The bank of this word is {tile.at} mod 32 = {tile.at % 32}. This bank has now delivered {part} words.", "active == 1"),
            mark("Pass {part} of {parts}: {active} lanes get a word. Lane {lane} reads word {tile.at}. The bank of this word is {tile.at} mod 32 = {tile.at % 32}. This bank has now delivered {part} words."),
            apart="where(visit == 1, wavefront(tile.at), 0)"),
        "store": step("y[i] = sum", "Each lane stores its sum to [y](output)."),
    },),
    (Number(mark("passes"), "distinct(wavefront(tile.at))", "", ("read",), adds=True),
     Number(mark("words read"), "active", "", ("read",), adds=True)),
    order=(mark("pass by pass"), mark("The picture shows one pass (wavefront) per step. The hardware decides which words share a pass. Here each bank delivers its words by address. The number of passes is counted, their order is not.")),
)

# -- branch --------------------------------------------------------------------------------------------
MOMENTS = ("load", "test", "first", "second", "store")
LINES = ("value = x[i]", "if (i % 2 == 0)", "sum = sum * 0.5f", "sum = sum * 0.25f", "y[i] = sum")
TABLES = {0: mark("warp 0: the line that each lane runs"), 1: mark("warp 1: the line that each lane runs")}


def _branch(warps: int, said: tuple[tuple[Say | str, ...], ...], in_branch: str, **fields: Any) -> View:
    tables = [PerThread(f"warp{n}", "workspace", TABLES[n], mark("time runs down"), mark("line"), value="line", place=("0", f"where(warp == {n}, lane, -1)"), part=(range(1), range(32)), during=MOMENTS, rows=MOMENTS) for n in range(warps)]
    return View(
        (Buffer("x", "input", "x", mark("32 per row"), shape=(2, 32)), *tables, Buffer("y", "output", "y", mark("32 per row"), shape=(2, 32))),
        (Group((("x",), *((table.name,) for table in tables), ("y",)), table=True),),
        ({kind: step(line, *say) for kind, line, say in zip(MOMENTS, LINES, said, strict=True)},),
        (Number(in_branch, "1", "", ("first", "second"), adds=True),
         Number(mark("lanes masked, added up"), "32 - active", "", MOMENTS[1:], adds=True)),
        group=32, step_name=mark("moment"),
        order=(mark("moment by moment"), mark("Each row is a moment of a warp, as the emulator executed it. Lines that count the loop or compute addresses are left out. On a GPU the scheduler chooses when each warp runs.")),
        **fields,
    )


LANES_APART = _branch(1, (
    (Say("Warp 1 does the same: its lanes run the same lines, with other numbers.", "warp == 1"), mark("All {active} lanes of the warp load their number of [x](input).")),
    (mark("The test: even lanes take the branch with 0.5f, odd lanes the one with 0.25f. The lanes disagree, so the warp must run both branches."),),
    (mark("First pass: {active} lanes run line {line}. The other {32 - active} lanes are masked: they wait."),),
    (mark("Second pass: {active} lanes run line {line}. Now the other {32 - active} lanes are masked."),),
    (mark("All {active} lanes run together again and store to [y](output)."),),
), mark("moments of warp 0 in a branch"), alone=32, detailed=32)
ONE_BRANCH = mark("All {active} lanes of warp {warp} run line {line}. No lane waits.")
LANES_TOGETHER = _branch(2, (
    (mark("All {active} lanes of warp {warp} load their number of [x](input)."),),
    (Say("The test: the elements of warp 0 are even. All its lanes take the branch with 0.5f.", "warp == 0"), mark("The test: the elements of warp 1 are odd. All its lanes take the branch with 0.25f.")),
    (ONE_BRANCH,), (ONE_BRANCH,),
    (mark("Warp {warp} stores its sums to [y](output)."),),
), mark("moments of both warps in a branch"))

# -- layout --------------------------------------------------------------------------------------------
TO_NHWC = View(
    (Buffer("a", "input", mark("NCHW: w varies fastest"), mark("one image per row"), of="x"),
     Buffer("x", "input", mark("tensor"), plane=mark("map")),
     Buffer("b", "output", mark("NHWC: c varies fastest"), mark("one image per row"), of="y")),
    (Group((("x",),), "global", mark("by its four axes")), Group((("a",), ("b",)), "global", mark("in memory, by address"))),
    ({
        "move": step("y[nhwc_index] = x[nchw_index]",
            "In NCHW [x](input)[{n}, {c}, {h}, {w}] has the address (({n} × {C} + {c}) × {H} + {h}) × {W} + {w} = {nchw_index}, byte {4 * nchw_index}. In NHWC it has the address (({n} × {H} + {h}) × {W} + {w}) × {C} + {c} = {nhwc_index}, byte {4 * nhwc_index}."),
    },),
    (Number(mark("address in NCHW"), "max(x.at)", "input", ("move",)), Number(mark("address in NHWC"), "max(b.at)", "output", ("move",))),
    group=1, step_name=mark("thread"),
    order=(mark("thread by thread"), mark("The picture shows one thread per step. The GPU runs the 32 threads of a warp together.")),
)
VIEWS: Mapping[str, View] = {
    "add/vector": VECTOR, "add/matrix": MATRIX, "add/matrix-transposed": MATRIX,
    "stride/copy": COPY, "banks/plain": READ, "banks/padded": READ,
    "branch/lanes": LANES_APART, "branch/warps": LANES_TOGETHER,
    "layout/along-w": TO_NHWC, "layout/along-c": TO_NHWC,
}
