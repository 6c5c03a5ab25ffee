# fmt: off
"""What the stage shows of each embedding kernel: its tensors, the lines that are steps, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import mark
from visuals.scene.compiler.view import SHARED_MEMORY, Buffer, Bytes, Say, Shared, Step, View, step
from visuals.scene.parts import Group

TOKENS, TABLE, Y = Buffer("tokens", "filter", "tokens"), Buffer("table", "input", "table"), Buffer("y", "output", "y")
DY, DTABLE = Buffer("dy", "input", "dy"), Buffer("dtable", "output", "dtable")
RANKS = Buffer("ranks", "workspace", "ranks", mark("equal tokens before, in the chunk"))
COUNTS = Buffer("counts", "workspace", "counts", mark("one row per chunk"))
EARLIER = Buffer("earlier", "workspace", "earlier", mark("counts of the chunks before"))
TOTALS = Buffer("totals", "workspace", "totals", mark("of each token"))
FIRST = Buffer("first", "workspace", "first", mark("position of each token"))
ORDER = Buffer("order", "workspace", "order", mark("indices, sorted by token"))
PARTS = Buffer("parts", "workspace", "parts", mark("sums of runs"))
OF_BLOCKS = mark("one row per block")
CHUNK = Shared("chunk", "filter", "chunk", OF_BLOCKS, dtype="i4")
ROW = Shared("row", "workspace", "row", OF_BLOCKS, dtype="i4")
TOKEN = Shared("token_of_row", "filter", "token", OF_BLOCKS, "token", of="token", dtype="i4")  # the kernel also has variables of this name

FORWARD_TENSORS, BACKWARD_TENSORS = (TOKENS, TABLE, Y), (TOKENS, DY, DTABLE)
SORT_TENSORS = (RANKS, COUNTS, EARLIER, TOTALS, FIRST, ORDER)
MEMORY = mark("global memory")
OF_FORWARD = Group((("tokens",), ("table", "y")), "global", MEMORY)
OF_BACKWARD = Group((("tokens",), ("dtable", "dy")), "global", MEMORY)
SORT_ROWS = (("ranks",), ("counts",), ("earlier",), ("totals",), ("first",), ("order",))
WORKSPACE, SHARED = mark("workspace in global memory"), mark("shared memory of the block")


MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
SHARED_BYTES = Bytes(mark("bytes to and from shared memory"), SHARED_MEMORY, "")

# -- forward -----------------------------------------------------------------------------------------------
ELEMENTS = View(
    FORWARD_TENSORS, (OF_FORWARD,),
    (
        {
            "element": step("size_t m = i / d",
                "Block {block} has elements {min(i)} to {max(i)} of [y](output). Thread {thread} finds row {m} by a division. It reads [tokens](filter)[{m}] = {tokens} and copies one float of row {tokens} of the [table](input): {table}.",
                to="y[i] =", lit="y[i] =", by="block"),
        },
    ),
    MOVED, others=(mark("The other blocks ({others}) copy their elements in the same way. [y](output) is complete."),),
)
ROWS = View(
    FORWARD_TENSORS, (OF_FORWARD,),
    (
        {
            "row": step("table += (size_t)tokens[m] * d",
                "Warp {warp} of block {block} has row {m}. All lanes read [tokens](filter)[{m}] = {tokens}. They copy row {tokens} of the [table](input) to row {m} of [y](output).",
                to="to[first + 32 * i] = values[i]", by="m", merge=True),
        },
    ),
    MOVED, others=(mark("The warps of the other blocks ({others}) copy the other rows. [y](output) is complete."),),
)

# -- atomics -----------------------------------------------------------------------------------------------
ATOMICS = View(
    BACKWARD_TENSORS, (OF_BACKWARD,),
    (
        {"zero": step("if (i < count) y[i] = 0.0f", "First launch: every element of [dtable](output) becomes 0. The additions that follow start from it.")},
        {
            "add": step("atomicAdd(",
                Say("Row {m} of [dy](input) has token {tokens} too. Its additions go to elements of an earlier row. Thread {thread} adds {dy} to {dtable.read}. Additions to one element run one after the other. On a GPU their order differs from run to run.", "dtable.read != 0"),
                Say("Second launch. Row {m} of [dy](input) has token {tokens}. Each of its elements is added atomically to row {tokens} of [dtable](output). Thread {thread} adds {dy} to {dtable.read}."),
                by="m"),
        },
    ),
    MOVED,
)

# -- sort --------------------------------------------------------------------------------------------------
CLEAR = {"clear": step("if (i < count) counts[i] = 0", "First launch: all [counts](workspace) become 0. A chunk of tokens has one row of counts.")}
RANK = {
    "chunk": step("int token = m < M ? tokens[m] : -1",
        Say("Second launch, block {block}: tokens {min(m)} to {max(m)} are copied to shared memory.", "max(m) < M"),
        Say("Second launch, block {block}: tokens {min(m)} to {M - 1} are copied to shared memory. Threads without a token store −1."),
        to="chunk[thread] = token", lit="chunk[thread] = token", by="block"),
    "wait": step("__syncthreads()", "Barrier: every thread waits until all tokens of its chunk are in shared memory."),
    "rank": step("if (chunk[i] != token) continue",
        Say("Block {block}: each thread compares its token with all of the chunk. [ranks](workspace) says how many equal ones come before it. Thread {thread} has token {token} and rank {ranks}. The last thread of each token stores the count.", pick="ranks"),
        to="counts[(size_t)blockIdx.x * V + token]", lit="rank += i < thread", by="block", merge=True),
}
COUNT = {
    "totals": step("earlier[i] = total",
        Say("Third launch: each thread has one token. [earlier](workspace) says how often the token occurs in the chunks before each. What remains is the total: token {token} occurs {total} times.", pick="total"),
        to="totals[token] = total", merge=True),
}
SCAN = {
    "load": step("counts[i] = token + i < V ? totals[token + i] : 0", "Fourth launch, one block: each thread reads the totals of {PER} tokens and adds them up.", to="own += counts[i]", merge=True),
    "lanes": step("int other = __shfl_up_sync", "The lanes of a warp add up their sums in five steps. The last lane of each warp stores the sum of the warp in shared memory.",
        to="if (lane == 31) of_warp[warp] = upto", merge=True),
    "scan_wait": step("__syncthreads()", "Barrier: every thread waits until every warp has stored its sum."),
    "scan": step("int position = before + upto - own",
        Say("Each thread adds the sums of the warps before its own. [first](workspace) says where each token begins in sorted order: token {first.at} begins at {first}.", pick="first.at"),
        to="position += counts[i]", lit="first[token + i] = position", merge=True),
    "scan_end": step(("__syncthreads()", 1), "Barrier: every thread waits until all have read the sums of the warps. The next iteration may overwrite them."),
}
PLACE = {
    "place": step("int token = tokens[m]",
        "Fifth launch, block {block}: index {m} has token {token}. Its position is where the token begins, {first}, plus {earlier} in earlier chunks, plus its rank {ranks}. [order](workspace)[{order.at}] = {m}.",
        to="order[first[token] + before] = m", lit="order[first[token] + before] = m", by="m"),
}
SORT = CLEAR, RANK, COUNT, SCAN, PLACE
OTHERS_OF_SORT = (
    mark("The other blocks ({others}) store zeros too."), mark("The other blocks ({others}) do the same for their chunks."),
    mark("The other blocks ({others}) do the same for their tokens."), "",
    mark("All other indices go to their positions. Rows of one token are neighbours in [order](workspace), and keep their order."),
)

# -- sums --------------------------------------------------------------------------------------------------
OF_TOKEN = mark("Last launch, block {block} has token {token}.")
SORTED = View(
    (*BACKWARD_TENSORS, *SORT_TENSORS, CHUNK), (OF_BACKWARD, Group(SORT_ROWS, "workspace", WORKSPACE), Group((("chunk",),), "shared", SHARED)),
    (
        *SORT,
        {
            "token": step("int token = blockIdx.x, start = first[token]",
                Say("The token does not occur. The block stores zeros.", "start == end"),
                Say("It adds its rows of [dy](input) in their order and stores row {token} of [dtable](output). Rows of this token: {end - start}."),
                lead=OF_TOKEN, to="dtable[column] = sum", lit="sum += dy[", by="block", merge=True),
        },
    ),
    (*MOVED, SHARED_BYTES),
    others=(*OTHERS_OF_SORT, mark("The other blocks ({others}) do the same for their tokens. [dtable](output) is complete.")),
)


def of_runs(call: int) -> dict[str, Step]:
    """Returns the steps in the function that adds runs, of one of its calls: 1 for columns of four floats, 2 for floats."""
    inside = "sum_columns(", call
    return {
        f"load_{call}": step("if (token[i] >= 0)", "Block {block}: each thread loads its columns of all rows of [dy](input) that the block has. No number is added yet.",
            to="values[i] = dy[", lit="values[i] = dy[", inside=inside, by="block", merge=True),
        f"whole_{call}": step("dtable[(size_t)token[i] * columns", "Block {block}: all rows of token {token_of_row[block * (ROWS + 1) + i]} are in this block ({i - head + 1} in all). Their sum is row {token_of_row[block * (ROWS + 1) + i]} of [dtable](output).",
            inside=inside, by="block"),
        f"part_{call}": step("parts[((size_t)blockIdx.x * ROWS + head)", "Block {block}: only some rows of token {token_of_row[block * (ROWS + 1) + i]} are in this block ({i - head + 1} here). Their sum is a part. It is stored where the run begins.",
            inside=inside, by="block"),
    }


RUNS = View(
    (*BACKWARD_TENSORS, *SORT_TENSORS, PARTS, CHUNK, ROW, TOKEN),
    (OF_BACKWARD, Group((*SORT_ROWS, ("parts",)), "workspace", WORKSPACE), Group((("chunk",), ("row", "token_of_row")), "shared", SHARED)),
    (
        *SORT,
        {
            "rows": step("int m = i < rows ? order[start + i] : 0",
                "Sixth launch, block {block}: it reads positions {start} to {start + rows - 1} of [order](workspace) and their tokens. A token is whole if it begins in this block and all its rows are here.",
                to="totals[token[i]] <= rows - i", by="block", merge=True),
            "rows_wait": step("__syncthreads()", "Barrier: every thread waits until rows and tokens of its block are in shared memory."),
            **of_runs(1), **of_runs(2),
        },
        {
            "find": step("int token = blockIdx.x, start = first[token]",
                Say("It does not occur.", "total == 0"),
                Say("All its rows were in one block. Row {token} of [dtable](output) is ready, and this block does nothing.", "start // ROWS == last // ROWS"),
                Say("Its rows were in {last // ROWS - start // ROWS + 1} blocks."),
                lead=OF_TOKEN, to="start / ROWS == last / ROWS", lit="start / ROWS == last / ROWS", by="block"),
            "zeros": step("((float4*)dtable)[four] = float4{}", "Block {block} stores zeros to row {token} of [dtable](output).", by="block", merge=True),
            "join": step("float sum = total ? parts[",
                Say("Block {block} stores zeros to row {token} of [dtable](output).", "total == 0"),
                Say("Block {block} adds the parts, in their order, and stores row {token} of [dtable](output)."),
                to="dtable[column] = sum", lit="sum += parts[", by="block", merge=True),
        },
    ),
    (*MOVED, SHARED_BYTES),
    others=(*OTHERS_OF_SORT, mark("The other blocks ({others}) add their runs in the same way."), mark("The other blocks ({others}) do the same. [dtable](output) is complete.")),
)
VIEWS: Mapping[str, View] = {
    "embedding/elements": ELEMENTS, "embedding/rows": ROWS,
    "embedding-backward/atomics": ATOMICS, "embedding-backward/sorted": SORTED, "embedding-backward/runs": RUNS,
}
