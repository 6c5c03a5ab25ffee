"""The steps of the scenes of a fully connected layer: the line that each kind lights, and its caption.

The names of tensors are fields of the captions; the numbers {0}, {1} ... are those of a step.
"""

from __future__ import annotations

from kernels.i18n import mark, tr
from kernels.linear.ladder import DINPUT, DWEIGHT, LINEAR
from visuals.linear.plan import Product
from visuals.scene.launch_scene import StepKind

ROLES = {
    "x": "input",
    "W": "filter",
    "b": "filter",
    "y": "output",
    "dy": "input",
    "dx": "output",
    "dW": "output",
    "db": "output",
}

CAPTIONS = {
    # -- naive -------------------------------------------------------------------------------------------
    "begin": mark("Block (0, 0) computes rows 0 to {0} and columns 0 to {1} of {out}, one result per thread. The picture follows thread (0, 0). Its sum is 0."),
    "term": mark("{term} = {0}: thread (0, 0) multiplies {1} of {left} by {2} of {right}. Its sum is now {3}."),
    "terms": mark("{term} = {0} to {1}: thread (0, 0) adds these terms in the same way. Its sum is now {2}."),
    "store_one": mark("Thread (0, 0) stores {0} to {out}."),
    "store_one_bias": mark("Thread (0, 0) adds [b](filter)[0] = {0} and stores {1} to {out}."),
    "rest": mark("All other threads do the same for their results. {out} is complete."),
    "column": mark("Second launch. Each thread has one column of {left}. Thread 0 adds its {0} numbers and stores [db](output)[0] = {1}. The others store theirs."),
    # -- tiles -------------------------------------------------------------------------------------------
    "start": mark("Block (0, 0) computes rows 0 to {0} and columns 0 to {1} of {out}. Thread 0 keeps {2} × {3} sums in registers, all 0."),
    "start_part": mark("The sum over {term} is cut into {4} parts. Block (0, 0, 0) computes the first part of rows 0 to {0} and columns 0 to {1}. Thread 0 keeps {2} × {3} sums."),
    "copy_left_transposed": mark("Tile {0} of {1}, {term} from {2} on: the block copies its rows of {left} to shared memory. Rows become columns: the tile is transposed."),
    "copy_left_straight": mark("Tile {0} of {1}, {term} from {2} on: the block copies rows of {left} to shared memory as they are."),
    "copy_right_transposed": mark("Tile {0} of {1}: the block copies its rows of {right} too. This tile is transposed as well."),
    "copy_right_straight": mark("Tile {0} of {1}: the block copies rows of {right} to shared memory as they are."),
    "wait": mark("Each thread waits until its own copies of tile {0} have arrived in shared memory."),
    "barrier": mark("Barrier: every thread waits until the copies of all threads for tile {0} are complete."),
    "multiply": mark("The tiles have {0} rows. Of each, thread 0 reads {1} floats of one tile and {2} of the other. It adds their products to its {3} sums. The first sum is now {4}."),
    "columns": mark("{0} threads of this block also add up the columns of the tile of {left}: parts of [db](output). Thread 0 has {1}."),
    "store": mark("Thread 0 stores its {0} sums to {out}."),
    "store_bias": mark("Thread 0 adds [b](filter) to its {0} sums and stores them to {out}."),
    "store_part": mark("Thread 0 stores its {0} sums to the workspace: a part of {out}, without further additions."),
    "block": mark("The other threads of block (0, 0) store their sums."),
    "block_db": mark("The other threads of block (0, 0) store their sums, and {0} of them store the column sums."),
    "others": mark("The other blocks ({0}) do the same. {out} is complete."),
    "others_part": mark("The other blocks ({0}) do the same for their tiles and their parts."),
    "add": mark("Next launch: thread 0 adds the {0} parts of the first element of {out}, in their order. It stores {1}."),
    "add_bias": mark("Next launch: thread 0 adds [b](filter)[0] and the {0} parts of the first element of {out}. It stores {1}."),
    "add_rest": mark("All other threads do the same. {out} is complete."),
    "add_db": mark("Next launch: thread 0 adds the {0} parts of [db](output)[0] and stores {1}."),
    "add_db_rest": mark("All other threads do the same. [db](output) is complete."),
}  # fmt: skip

_SUM = {
    LINEAR: "sum += x[(size_t)m * K + k]",
    DINPUT: "sum += dy[(size_t)m * N + n]",
    DWEIGHT: "sum += dy[(size_t)m * N + n]",
}
_STORED = {LINEAR: "store_four(y, M, N", DINPUT: "store_four(dx, M, K", DWEIGHT: "store_four(dW, N, K"}
_RESULT = {LINEAR: "y[(size_t)m * N + n] =", DINPUT: "dx[(size_t)m * K + k] =", DWEIGHT: "dW[(size_t)n * K + k] ="}


def kinds(rung: str, product: Product) -> dict[str, StepKind]:
    """Returns the kinds of steps of a rung by name, with the names of its tensors in their captions."""
    ladder, _, name = rung.partition("/")
    lines = {"naive": _naive, "tile": _tile, "split": _split}[name](ladder, product)
    names = {
        "left": _marked(product.left),
        "right": _marked(product.right),
        "out": _marked(product.result),
        "term": product.terms,
    }
    return {
        kind: StepKind(launch, line, tr(CAPTIONS[kind], **names))
        for launch, of_launch in enumerate(lines)
        for kind, line in of_launch.items()
    }


def _marked(name: str) -> str:
    return f"[{name}]({ROLES[name]})"


def _naive(ladder: str, product: Product) -> tuple[dict[str, str], ...]:
    store = "store_one_bias" if ladder == LINEAR else "store_one"
    first = {
        "begin": "sum = 0.0f",
        "term": _SUM[ladder],
        "terms": _SUM[ladder],
        store: _RESULT[ladder],
        "rest": "= blockIdx.x * BLOCK",
    }
    return (first, {"column": "sum += dy["}) if ladder == DWEIGHT else (first,)


def _tile(ladder: str, product: Product) -> tuple[dict[str, str], ...]:
    store, block = ("store_bias", "block") if ladder == LINEAR else ("store", "block")
    if ladder == DWEIGHT:
        block = "block_db"
    return (
        {
            "start": "sum[TM][TN] =",
            **_loop(ladder, product),
            store: _STORED[ladder],
            block: _STORED[ladder],
            "others": "block_row = blockIdx",
        },
    )


def _split(ladder: str, product: Product) -> tuple[dict[str, str], ...]:
    block = "block_db" if ladder == DWEIGHT else "block"
    first = {
        "start_part": "length = ((",
        **_loop(ladder, product),
        "store_part": _STORED[ladder],
        block: _STORED[ladder],
        "others_part": "block_row = blockIdx",
    }
    add = "add_bias" if ladder == LINEAR else "add"
    second = {add: "sum += parts[", "add_rest": "sums[i] = sum"}
    third = {"add_db": "sum += parts[", "add_db_rest": "sums[i] = sum"}
    return (first, second, third) if ladder == DWEIGHT else (first, second)


def _loop(ladder: str, product: Product) -> dict[str, str]:
    left = "transposed" if product.left_transposed else "straight"
    right = "transposed" if product.right_transposed else "straight"
    tile_left, tile_right = tile_names(product)
    lines = {
        f"copy_left_{left}": f"({tile_left}[stage]",
        f"copy_right_{right}": f"({tile_right}[stage]",
        "wait": "wait_groups<STAGES - 2>()",
        "barrier": "__syncthreads()",
        "multiply": "add_products(sum",
    }
    return lines | ({"columns": "column_sum += tile_dy"} if ladder == DWEIGHT else {})


def tile_names(product: Product) -> tuple[str, str]:
    """Returns the names of the tiles in the kernel."""
    return f"tile_{product.left.lower()}", f"tile_{product.right.lower()}"
