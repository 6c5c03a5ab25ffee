"""Captions of the elementwise scenes: a sentence for each kind of step, and the kernel's line that it lights.

{0} is the block, {1} the warp, {2} the number of active lanes, {3} the first element, {4} and on its numbers.
"""

from __future__ import annotations

from kernels.i18n import mark, tr
from visuals.elementwise.plan import BALLOT, ELEMENTS, IDLE, LOAD, STORE, ZERO

VALUES = 4  # where the numbers of the first element begin
ITERATION, ITERATIONS, LAST = 10, 11, 12  # which float4 of how many; the last element
# What is computed for one element, and the numbers in the sentence: of the buffer after the launch, or before it.
OPERATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "relu": (mark("[y](output)[{3}] = max([x](input), 0) = max({4}, 0) = {5}."), ("x", "y")),
    "relu_bytes": (
        mark("[y](output)[{3}] = max([x](input), 0) = max({4}, 0) = {5}. The byte [mask](workspace)[{3}] becomes {6}."),
        ("x", "y", "mask"),
    ),
    "relu_bits": (
        mark("[y](output)[{3}] = max([x](input), 0) = max({4}, 0) = {5}. Its bit of the [mask](workspace) is {6}."),
        ("x", "y", "mask"),
    ),
    "relu_backward": (
        mark("[y](output)[{3}] is {4}. So [dx](input)[{3}] = {6}, from [dy](output)[{3}] = {5}."),
        ("y", "dy", "dx"),
    ),
    "relu_backward_mask": (
        mark("[mask](workspace)[{3}] is {4}. So [dx](input)[{3}] = {6}, from [dy](output)[{3}] = {5}."),
        ("mask", "dy", "dx"),
    ),
    "gelu": (
        mark("[y](output)[{3}] = [x](input) times the share of normal numbers below it. From {4} it becomes {5}."),
        ("x", "y"),
    ),
    "gelu_backward": (
        mark("[x](input)[{3}] is {4}. So [dx](input)[{3}] = {6}: [dy](output)[{3}] = {5}, times the slope at x."),
        ("x", "dy", "dx"),
    ),
    "bias": (
        mark("Element {3} is in channel {7}: [y](output)[{3}] = [x](input) + [b](filter)[{7}] = {4} + {5} = {6}."),
        ("x", "b", "y", "channel"),
    ),
    "bias_backward_atomics": (
        mark(
            "Element {3} is in channel {6}. [dy](output)[{3}] = {4} is added to [db](filter)[{6}], which is then {5}."
        ),
        ("dy", "db_after", "channel"),
    ),
    "add": (
        mark("[sum](workspace)[{3}] = [a](input) + [b](filter) = {4} + {5} = {6}. It is written to memory."),
        ("a", "b", "sum"),
    ),
    "relu_of_sum": (
        mark("[sum](workspace)[{3}] = {4} is read again. [y](output)[{3}] = max({4}, 0) = {5}."),
        ("sum", "y"),
    ),
    "residual": (
        mark(
            "[y](output)[{3}] = max([a](input) + [b](filter), 0) = max({4} + {5}, 0) = {6}. The sum stays in a register."
        ),
        ("a", "b", "y"),
    ),
    "mask_of_dy": (mark("[y](output)[{3}] is {4}. So [da](input)[{3}] = {6}, from dy[{3}] = {5}."), ("y", "dy", "da")),
    "accumulate": (
        mark("[da](input)[{3}] = {4} is read again and added to [db](filter)[{3}]: {5} + {4} = {6}."),
        ("da", "db_before", "db"),
    ),
    "residual_backward": (
        mark(
            "[y](output)[{3}] is {4} and dy[{3}] is {5}. So [da](input)[{3}] = {6}. "
            "[db](filter)[{3}] held {7} and becomes {8}."
        ),
        ("y", "dy", "da", "db_before", "db"),
    ),
}
WHO = mark("Block {0}, warp {1}, active lanes: {2}. Each has one element.")
_KINDS = {
    IDLE: mark("Block {0}, warp {1}: its lanes are beyond the end. They have no element."),
    LOAD: mark(
        "Block {0}, warp {1}: float4 number {10} of {11}. The active lanes ({2}) load elements {3} to {12}, 16 bytes each. "
        "None is used yet."
    ),
    BALLOT: mark(
        "Block {0}, warp {1}: one instruction gives a word with the bits of all 32 lanes. Lane 0 stores it as word {13} of the "
        "[mask](workspace). Positive elements: {14}."
    ),
    ZERO: mark("Additions need a sum to start from. The first launch sets every [db](filter) to 0."),
}
_STORED = mark("Block {0}, warp {1} computes its float4 number {10} of {11} and stores it.")
WORDS, POSITIVE = 13, 14
WIDTH = 15  # numbers of a caption


def template(kind: str, operation: str) -> str:
    """Returns the caption of a kind of step of a launch, in the reader's language."""
    if kind == ELEMENTS:
        return f"{tr(WHO)} {tr(OPERATIONS[operation][0])}"
    if kind == STORE:
        return f"{tr(_STORED)} {tr(OPERATIONS[operation][0])}"
    return tr(_KINDS[kind])


def lit(kind: str, entry: str) -> str:
    """Returns a text of the line that a kind of step of a kernel lights."""
    if kind in (LOAD, STORE):
        return "load_four(" if kind == LOAD else "store_four("
    if kind == IDLE:
        return "if (i < count) y[i]" if entry == "relu_bits" else "int i" if entry.endswith("float4") else "return;"
    return {
        BALLOT: "__ballot_sync",
        ZERO: "= 0.0f",
        ELEMENTS: {
            "relu_bits": "y[i] = ",
            "bias_backward_atomics": "atomicAdd(",
            "add": "sum[i] = ",
            "accumulate": "db[i] += ",
            "relu_backward": "dx[i] = ",
            "relu_backward_bits": "dx[i] = ",
            "gelu_backward": "dx[i] = ",
            "residual_backward": "db[i] += ",
        }.get(entry, "y[i] = "),
    }[kind]
