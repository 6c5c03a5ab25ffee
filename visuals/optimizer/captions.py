"""Captions of the optimisers' scenes: a sentence for each kind of step, and the kernel's line that it lights.

{0} is the launch, {1} the block, {2} the warp, {3} the number of active lanes, {4} the tensor, {5} the first element's index
in it, {6} and {7} where the chunk begins and its elements, {8} and on the numbers of the first element.
"""

from __future__ import annotations

from kernels.i18n import mark, tr

TABLE, UPDATE, LOAD, STORE, IDLE = "table", "update", "load", "store", "idle"
NUMBERS, WIDTH = 8, 16
FORMULAS = {
    "sgd": mark("Its new [v](workspace) is {8} · {9} + {10} = {11}. Its new [w](filter) is {12} − {13} · {11} = {14}."),
    "adam": mark(
        "With gradient {8}: [m](input) was {9} and becomes {10}. [v](workspace) was {11} and becomes {12}. "
        "[w](filter) was {13} and changes by {14}."
    ),
}
_TEXTS = {
    "tensor": mark(
        "Launch {0}, block {1}, warp {2}: active lanes {3}. The first lane updates element {5} of tensor {4}."
    ),
    "chunk": mark("Block {1}, warp {2}: active lanes {3}. The first lane updates element {5} of tensor {4}."),
    TABLE: mark(
        "Block {1} reads line {1} of the [table](output): its chunk begins at {6} and has {7} elements. They belong to tensor {4}."
    ),
    LOAD: mark(
        "Block {1}, warp {2}: each active lane ({3} of 32) loads a float4 of every array, from element {5} of tensor {4} on. "
        "None is used yet."
    ),
    IDLE: mark("Block {1}, warp {2}: its lanes are beyond the end of the chunk. They have no element."),
}
LIT = {TABLE: "int2 chunk = ", UPDATE: "update(w[at]", LOAD: "load_four(weight[k]", STORE: "update(weight[k][j]"}


def template(kind: str, ladder: str, per_tensor: bool) -> str:
    """Returns the caption of a kind of step in the reader's language."""
    if kind in (UPDATE, STORE):
        return f"{tr(_TEXTS['tensor' if per_tensor else 'chunk'])} {tr(FORMULAS[ladder])}"
    return tr(_TEXTS[kind])


def lit(kind: str, per_tensor: bool) -> str:
    """Returns a text of the line that a kind of step lights."""
    if kind == IDLE:
        return "return;" if per_tensor else "for (int i"
    return LIT[kind]
