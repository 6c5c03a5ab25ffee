# fmt: off
"""What the stage shows of the copies between rows of tokens and heads. A view depends on the shape: on the names of the parts, and on how
many threads copy one head of one token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kernels.heads.ladder import MERGE, SPLIT, width
from kernels.heads.shape import HeadsShape
from kernels.i18n import mark, tr
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Shown, Step, View, in_turn, step
from visuals.scene.parts import Group

MAX_STEPS = 24  # of the first threads; the others follow in one step

PLACE = {  # as heads.cuh has it, of element i of the rows
    "run": "i // shape.d", "head": "run % shape.h", "token": "run // shape.h // PARTS", "t": "token % shape.T",
    "plane": "token // shape.T * shape.h + head",
}
UNIT = {**PLACE, "i": "block * BLOCK * PER + thread + k * BLOCK", "slot": "block * BLOCK + thread", "bytes": "4 * WIDTH"}
NOTE = mark("On a GPU all threads of a warp run this at the same time, and the warps in an order of the scheduler’s. All values are those of the kernel in the emulator.")
BY_HEAD, BY_BLOCK = mark("head by head of each token"), mark("block by block")
GLOBAL, REGISTERS = mark("global memory"), mark("registers of one block")

RUN = mark("Threads {min(i)} to {max(i)} divide their index by d, then by h. All find token {token} and head {head}NAMED. Their {active} numbers are row {t} of plane {plane} of [NAME](ROLE).")
OTHERS = mark("The other threads copy their numbers in the same way. Threads: {active}.")
LOAD_ROW = mark("Block {block}: load {k} of each thread. Threads read [x](input) one after another, {bytes} bytes each, and keep them in [v](input).")
STORE_HEAD = mark("The threads with head {head}NAMED store load {k}: each token’s numbers become a row of plane {plane} of [NAME](ROLE).")
LOAD_HEAD = mark("Load {k} of the threads with head {head}NAMED: they read rows of plane {plane} of [NAME](ROLE), {bytes} bytes each, into [v](input).")
STORE_ROW = mark("Block {block}: the threads store load {k}. The stores of [y](output) are one after another.")


def elements(s: HeadsShape, ladder: str, tiles: Mapping[str, int]) -> View:
    """Returns the view of one thread per number: the threads of one head of one token take their step together."""
    at = "y[place.offset] = x[i]" if ladder == SPLIT else "y[i] = x[place.offset]"
    run = step(at, Say(OTHERS, f"run >= {MAX_STEPS}"), *_of_parts(s, ladder, RUN), apart=f"where(run < {MAX_STEPS}, run, {MAX_STEPS})")
    return View(_in_memory(s, ladder), (_memory(s, ladder),), ({"run": run},), _moved(s, ladder), order=(BY_HEAD, NOTE), names=PLACE)


def float4(s: HeadsShape, ladder: str, tiles: Mapping[str, int]) -> View:
    """Returns the view of several units per thread: each block loads its units, then it stores them, head by head on the side of the
    heads."""
    block, per = tiles["BLOCK"], tiles["PER"]
    alone = max(1, MAX_STEPS // (per * (1 + s.parts * s.h))) * block
    others = Say(OTHERS, f"slot >= {alone}")
    by = f"where(slot < {alone}, place.part * {s.N * s.h} + plane, -1)"
    steps: dict[str, Step] = {
        "load": step("v[k] = x[first", others, LOAD_ROW) if ladder == SPLIT else step("v[k] = x[place.offset]", others, *_of_parts(s, ladder, LOAD_HEAD), apart=by),
        "store": step("y[place.offset] = v[k]", *_of_parts(s, ladder, STORE_HEAD), apart=by) if ladder == SPLIT else step("y[first + k * BLOCK] = v[k]", STORE_ROW),
    }
    group = min(block, s.elements // width(s))
    v = PerThread("v", "input", "v", mark("one column per thread, one row per register"), **in_turn(group))
    return View(
        (*_in_memory(s, ladder), v), (_memory(s, ladder), Group((("v",),), "registers", REGISTERS)), (steps,), _moved(s, ladder),
        group=group, alone=alone, detailed=alone, order=(BY_BLOCK, NOTE), names=UNIT,
    )


VIEWS: Mapping[str, Callable[[HeadsShape, str, Mapping[str, int]], View]] = {
    f"{ladder}/{name}": view for ladder in (SPLIT, MERGE) for name, view in (("elements", elements), ("float4", float4))
}


def _of_parts(s: HeadsShape, ladder: str, text: str) -> Iterator[Say]:
    """Yields a sentence for each part: threads of one part are among those of a step."""
    for part, name in enumerate(s.names):
        named = tr(" of {name}", name=name) if s.parts > 1 else ""
        words = tr(text).replace("NAMED", named).replace("NAME", name).replace("ROLE", "output" if ladder == SPLIT else "input")
        yield Say(words, f"place.part == {part}")


def _in_memory(s: HeadsShape, ladder: str) -> tuple[Shown, ...]:
    rows, heads = (("x", "input"), "output") if ladder == SPLIT else (("y", "output"), "input")
    return Buffer(*rows, rows[0]), *(Buffer(name, heads, name) for name in s.names)


def _memory(s: HeadsShape, ladder: str) -> Group:
    return Group((("x",), s.names) if ladder == SPLIT else (s.names, ("y",)), "global", GLOBAL)


def _moved(s: HeadsShape, ladder: str) -> tuple[Bytes, ...]:
    heads = " ".join(s.names)
    read, written = ("x", heads) if ladder == SPLIT else (heads, "y")
    return Bytes(mark("bytes read from global memory"), read, "ld"), Bytes(mark("bytes written to global memory"), written, "st")
