# fmt: off
"""What the stage shows of each optimiser's kernel. Every array is shown tensor by tensor, one row each. The gaps between the tensors are left
out: no kernel touches them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from kernels.i18n import decimal, mark, tr
from kernels.model.program import Program
from kernels.optimizer.shape import OptimizerShape
from visuals.scene.compiler.view import Buffer, Bytes, Number, Say, Step, View, step
from visuals.scene.parts import Group

ROLES = {"w": "filter", "g": "output", "m": "input", "v": "workspace"}
TITLES = {
    "sgd": {"w": mark("w, weights"), "g": mark("g, gradient"), "v": mark("v, running sum of gradients")},
    "adam": {"w": mark("w, weights"), "g": mark("g, gradient"), "m": mark("m, average of gradients"), "v": mark("v, average of their squares")},
}
FORMULAS = {
    "sgd": mark("Its new [v](workspace) is {by.momentum} · {v[w.at]} + {g[w.at] + by.weight_decay * w[w.at]} = {v.new}. Its new [w](filter) is {w[w.at]} − {by.lr} · {v.new} = {w.new}."),
    "adam": mark("With gradient {g[w.at] + by.weight_decay * w[w.at]}: [m](input) was {m[w.at]} and becomes {m.new}. [v](workspace) was {v[w.at]} and becomes {v.new}. [w](filter) was {w[w.at]} and changes by {w.new - w[w.at]}."),
}
OF_TENSOR = mark("Launch {tensor}, block {block}, warp {warp}: active lanes {active}. The first lane updates element {index} of tensor {tensor}.")
OF_CHUNK = mark("Block {block}, warp {warp}: active lanes {active}. The first lane updates element {index} of tensor {tensor}.")
OF_FOUR = mark("Block {block}, warp {warp} updates its float4 number {k + 1} of {PER} and stores it. The first lane updates element {index} of tensor {tensor}.")
BEYOND_TENSOR = mark("Block {block}, warp {warp}: its lanes are beyond the end of the tensor. They have no element.")
BEYOND_CHUNK = mark("Block {block}, warp {warp}: its lanes are beyond the end of the chunk. They have no element.")
LOAD = step("load_four(weight[k]",
    Say("", "min(i + 4 * BLOCK * k) >= chunk.y"),
    Say("Block {block}, warp {warp}, float4 number {k + 1} of {PER}: each lane with elements ({sum(i + 4 * BLOCK * k < chunk.y)} of 32) loads a float4 of every array, from element {begin} of tensor {tensor} on. None is used yet."))
MOVED = (Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st"))
LAUNCHES = mark("launches so far")


def table(width: int) -> Step:
    """Returns the step in which a block reads its line. `width`: neighbouring elements of a thread."""
    return step("int2 chunk = ",
        Say("Block {block} reads line {block} of the [table](output): its chunk begins at {chunk.x} and has {chunk.y} elements. They belong to tensor {of_chunk}.", "warp == 0"),
        Say(BEYOND_CHUNK, f"{width} * min(thread) >= chunk.y"), "")


def steps_of(entry: str, formula: str) -> dict[str, Step]:
    """Returns the steps of a kernel."""
    if entry.endswith("tensor"):
        return {"idle": step("return;", Say(BEYOND_TENSOR, "active == 32"), ""), "update": step("update(w[at]", formula, lead=OF_TENSOR)}
    if entry.endswith("chunks"):
        return {"table": table(1), "update": step("update(w[at]", formula, lead=OF_CHUNK)}
    last = "load_four(square[k]" if entry.startswith("adam") else "load_four(sum[k]"
    return {
        "table": table(4),
        "load": replace(LOAD, to=last),
        "store": step("update(weight[k][j]", Say("", "min(i + 4 * BLOCK * k) >= chunk.y"), formula, lead=OF_FOUR, to="store_four(v", each="k"),
    }


def view_of(program: Program, s: OptimizerShape, ladder: str) -> View:
    """Returns the view of a program of one of the ladders."""
    entries = [launch.entry for launch in program.launches]
    per_tensor, titles = entries[0].endswith("tensor"), TITLES[ladder]
    tensors = {array: tuple(_tensors(array, s)) for array in titles}
    chunks = () if per_tensor else (Buffer("chunks", "output", mark("first element, elements"), mark("one line per block"), symbol="table"),)
    return View(
        (*(tensor for of in tensors.values() for tensor in of), *chunks),
        (
            *(Group(tuple((tensor.name,) for tensor in of), "global", titles[array]) for array, of in tensors.items()),
            *(Group(((table.name,),), "global", mark("table of chunks")) for table in chunks),
        ),
        tuple(steps_of(entry, FORMULAS[ladder]) for entry in entries),
        (Number(LAUNCHES, f"{_tensor_of('first', s)} + 1" if per_tensor else "1", "", ("update", "table")), *MOVED),
        group=32, step_name=mark("warp"),
        names={"tensor": _tensor_of("w.at", s), "of_chunk": _tensor_of("chunk.x", s), "index": f"w.at - {_start_of('w.at', s)}", "begin": f"chunk.x - {_start_of('chunk.x', s)} + i + 4 * BLOCK * k"},
    )


def _tensors(array: str, s: OptimizerShape) -> Iterator[Buffer]:
    """Yields the tensors of an array: a row of elements each."""
    for n, (first, count) in enumerate(s.tensors):
        note = decimal(f"{count:,}")
        yield Buffer(f"{array}{n}", ROLES[array], tr("tensor {n}", n=n), note, array, of=array, place=("0", f"cell - {first}"), part=(range(1), range(count)))


def _tensor_of(element: str, s: OptimizerShape) -> str:
    """Returns the expression for the tensor of an element of the allocation."""
    return " + ".join(["0", *(f"where({element} >= {first}, 1, 0)" for first, _ in s.tensors[1:])])


def _start_of(element: str, s: OptimizerShape) -> str:
    """Returns the expression for where the tensor of an element begins."""
    starts = [first for first, _ in s.tensors]
    return "(" + " + ".join(["0", *(f"where({element} >= {at}, {at - before}, 0)" for before, at in pairwise(starts))]) + ")"
