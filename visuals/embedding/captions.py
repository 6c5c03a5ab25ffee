"""The steps of the embedding scenes: for each rung, its kinds of steps with the lines that they light, and the captions."""

from __future__ import annotations

from kernels.i18n import mark
from visuals.scene.launch_scene import StepKind
from visuals.scene.source import Mark

CAPTIONS = {
    # -- forward -----------------------------------------------------------------------------------------
    "element": mark("Block {0} has elements {1} to {2} of [y](output). Thread 0 finds row {3} by a division. It reads [tokens](filter)[{3}] = {4} and copies one float of row {4} of the [table](input): {5}."),
    "row": mark("Warp {0} has row {0}. All lanes read [tokens](filter)[{0}] = {1}. They copy row {1} of the [table](input) to row {0} of [y](output)."),
    "others_copy": mark("The other rows ({0}) are copied in the same way. [y](output) is complete."),
    # -- atomics -----------------------------------------------------------------------------------------
    "zero": mark("First launch: every element of [dtable](output) becomes 0. The additions that follow start from it."),
    "add": mark("Second launch. Row {0} of [dy](input) has token {1}. Its {2} elements are added atomically to row {1} of [dtable](output)."),
    "add_again": mark("Row {0} of [dy](input) has token {1} too. Its additions go to elements of an earlier row. Additions to one element run one after the other."),
    "others_add": mark("The other rows ({0}) are added in the same way. On a GPU their order differs from run to run."),
    # -- sort ----------------------------------------------------------------------------------------------
    "clear": mark("First launch: all [counts](workspace) become 0, one row of counts per chunk of {0} tokens."),
    "chunk": mark("Second launch, block {0}: tokens {1} to {2} are copied to shared memory. Barrier: every thread waits until all tokens of its chunk are there."),
    "rank": mark("Block {0}: each thread compares its token with all of the chunk. [ranks](workspace) says how many equal ones come before it. The last of each token stores the count."),
    "others_rank": mark("The other blocks ({0}) do the same for their chunks."),
    "totals": mark("Third launch: each thread has one token. [earlier](workspace) says how often it occurs in the chunks before each. What remains is the total: token {0} occurs {1} times."),
    "scan": mark("Fourth launch: one block adds up the totals. [first](workspace) says where each token begins in sorted order: token {0} begins at {1}."),
    "scan_lanes": mark("Fourth launch, one block: each thread reads the totals of {0} tokens. The lanes of a warp add up their sums in five steps. Barrier: every thread waits until every warp has stored its sum."),
    "scan_end": mark("Barrier: every thread waits until all have read the sums of the warps. The next iteration may overwrite them."),
    "place": mark("Fifth launch, block {0}: index {1} has token {2}. Its position is where the token begins, {3}, plus {4} in earlier chunks, plus its rank {5}."),
    "others_place": mark("All other indices go to their positions. Rows of one token are neighbours in [order](workspace), and keep their order."),
    # -- sums ------------------------------------------------------------------------------------------------
    "token": mark("Last launch, block {0} has token {0}. It adds its rows of [dy](input) in their order ({1} in all) and stores row {0} of [dtable](output)."),
    "token_none": mark("Block {0} has token {0}, which does not occur. It stores zeros."),
    "others_token": mark("The other blocks ({0}) do the same for their tokens. [dtable](output) is complete."),
    "run_rows": mark("Sixth launch, block {0}: it reads positions {1} to {2} of [order](workspace) and their tokens. Barrier: every thread waits until they are in shared memory."),
    "run_whole": mark("Block {0}: all rows of token {1} are in this block ({2} in all). Their sum is row {1} of [dtable](output)."),
    "run_part": mark("Block {0}: only some rows of token {1} are in this block ({2} here). Their sum is a part. It is stored where the run begins."),
    "join": mark("Last launch, block {0}: the rows of token {0} were in {1} blocks. It adds their parts, in their order, and stores row {0} of [dtable](output)."),
    "join_ready": mark("Block {0}: row {0} of [dtable](output) is ready. It does nothing."),
    "join_none": mark("Block {0}: token {0} does not occur. It stores zeros."),
    "others_run": mark("The other blocks ({0}) add their runs in the same way."),
    "others_join": mark("The other blocks ({0}) do the same. [dtable](output) is complete."),
}  # fmt: skip

_SORT: tuple[dict[str, Mark], ...] = (
    {"clear": "counts[i] = 0"},
    {"chunk": "__syncthreads()", "rank": "rank += i < thread", "others_rank": "counts[(size_t)blockIdx.x * V + token]"},
    {"totals": "earlier[i] = total"},
    {"scan_lanes": "__syncthreads()", "scan": "first[token + i] = position", "scan_end": ("__syncthreads()", 1)},
    {"place": "order[first[token]", "others_place": "order[first[token]"},
)

# By rung: for each of its launches, the line that each kind of step lights.
LINES: dict[str, tuple[dict[str, Mark], ...]] = {
    "embedding/elements": ({"element": "y[i] =", "others_copy": "i = (size_t)blockIdx"},),
    "embedding/rows": ({"row": "table += (size_t)tokens[m] * d", "others_copy": "m = blockIdx.x"},),
    "embedding-backward/atomics": (
        {"zero": "y[i] = 0.0f"},
        {"add": "atomicAdd", "add_again": "atomicAdd", "others_add": "i = (size_t)blockIdx"},
    ),
    "embedding-backward/sorted": (
        *_SORT,
        {"token": "sum += dy[", "token_none": "dtable[column] = sum", "others_token": "token = blockIdx.x"},
    ),
    "embedding-backward/runs": (
        *_SORT,
        {
            "run_rows": "__syncthreads()",
            "run_whole": "dtable[(size_t)token[i] * columns",
            "run_part": "parts[((size_t)blockIdx.x",
            "others_run": "start = blockIdx.x",
        },
        {
            "join": "sum += parts[",
            "join_ready": "start / ROWS == last / ROWS",
            "join_none": "total == 0 && d % 4",
            "others_join": "token = blockIdx.x",
        },
    ),
}


def kinds(rung: str) -> dict[str, StepKind]:
    """Returns the kinds of steps of a rung by name."""
    return {
        name: StepKind(launch, line, CAPTIONS[name])
        for launch, lines in enumerate(LINES[rung])
        for name, line in lines.items()
    }
