"""The sentences of the scenes of collectives. {0} is the round, {1} the number of rounds."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.collectives.shape import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    DIRECT,
    NAIVE,
    ONE_SHOT,
    PAIRWISE,
    REDUCE_SCATTER,
    RING,
    TREE,
    TWO_SHOT,
)
from kernels.i18n import mark

TITLES: Mapping[str, str] = {
    ALL_REDUCE: mark("all-reduce"),
    REDUCE_SCATTER: mark("reduce-scatter"),
    ALL_GATHER: mark("all-gather"),
    BROADCAST: mark("broadcast"),
    ALL_TO_ALL: mark("all-to-all"),
}
ALGORITHM_TITLES: Mapping[str, str] = {
    NAIVE: mark("through one GPU"),
    RING: mark("ring"),
    TREE: mark("tree"),
    ONE_SHOT: mark("one-shot"),
    TWO_SHOT: mark("two-shot"),
    DIRECT: mark("direct"),
    PAIRWISE: mark("in pairs"),
    "nccl": "NCCL",
}
START: Mapping[str, str] = {
    ALL_REDUCE: mark(
        "Each GPU holds [an array](input) of {2} numbers. At the end every GPU must hold [the sum](output) of all {3} arrays."
    ),
    REDUCE_SCATTER: mark(
        "Each GPU holds [an array](input) of {2} numbers. At the end each of the {3} GPUs must hold [one chunk of the sum](output)."
    ),
    ALL_GATHER: mark(
        "Each of the {3} GPUs holds [one chunk](input) of {2} numbers. At the end every GPU must hold [all chunks](output)."
    ),
    BROADCAST: mark("GPU 0 holds [an array](input) of {2} numbers. At the end all {3} GPUs must hold [it](output)."),
    ALL_TO_ALL: mark(
        "Each GPU holds [a block](input) for each of the {3} GPUs, {2} numbers in all. Each block must reach [its GPU](output)."
    ),
}
# By algorithm and whether the round adds. {2} and {3}: see scene._numbers.
ROUNDS: Mapping[tuple[str, bool], str] = {
    (NAIVE, True): mark(
        "Round {0} of {1}: GPU {2} sends its whole array to GPU 0, which [adds](output) it. All other GPUs wait."
    ),
    (NAIVE, False): mark("Round {0} of {1}: GPU 0 sends [its whole array](output) to GPU {3}. All other GPUs wait."),
    (RING, True): mark(
        "Round {0} of {1}: each GPU sends one chunk to the next, which [adds](output) it. GPU 1 receives chunk {2} from GPU 0."
    ),
    (RING, False): mark(
        "Round {0} of {1}: each GPU sends a [complete chunk](output) to the next, which keeps it. GPU 1 receives chunk {2} from GPU 0."
    ),
    (TREE, True): mark(
        "Round {0} of {1}: one GPU of each pair sends its whole array, and the other [adds](output) it. Pairs: {3}."
    ),
    (TREE, False): mark("Round {0} of {1}: each GPU that has the result sends [it](output) to one more. Senders: {3}."),
    (ONE_SHOT, True): mark(
        "Round {0} of {1}: every GPU reads the arrays of all GPUs and [adds](output) them in the order of the GPUs."
    ),
    (TWO_SHOT, True): mark(
        "Round {0} of {1}: GPU 0 reads chunk 0 of all GPUs and [adds](output) it, GPU 1 chunk 1, and so on."
    ),
    (TWO_SHOT, False): mark(
        "Round {0} of {1}: every GPU gets the [sums of the other chunks](output) from the GPUs that added them."
    ),
    (DIRECT, True): mark(
        "Round {0} of {1}: GPU 0 reads chunk 0 of all GPUs and [adds](output) it, GPU 1 chunk 1, and so on."
    ),
    (DIRECT, False): mark("Round {0} of {1}: every GPU [receives](output) from all others at once."),
    (PAIRWISE, False): mark("Round {0} of {1}: the GPUs exchange [one block](output) in pairs."),
}
END: Mapping[str, str] = {
    ALL_REDUCE: mark(
        "Every GPU holds [the sum](output), equal bit for bit. In all rounds together the busiest port moved {2} numbers."
    ),
    REDUCE_SCATTER: mark(
        "Each GPU holds [its chunk of the sum](output). In all rounds together the busiest port moved {2} numbers."
    ),
    ALL_GATHER: mark(
        "Every GPU holds [all chunks](output). In all rounds together the busiest port moved {2} numbers."
    ),
    BROADCAST: mark("Every GPU holds [the array](output). In all rounds together the busiest port moved {2} numbers."),
    ALL_TO_ALL: mark("Every block is at [its GPU](output). In all rounds together the busiest port moved {2} numbers."),
}
# Of a broadcast along a ring only some GPUs send in a round.
CHAIN = mark(
    "Round {0} of {1}: chunks travel along the GPUs, so that several links are busy at once. GPUs that send a [chunk](output): {3}."
)
# The lines of our kernels that a step lights: the start, then each kind of round.
MARKS: Mapping[str, tuple[str, ...]] = {
    NAIVE: ("READY,", "if (rank == 0) add_for_all", "if (rank == 0) add_for_all", "DONE,"),
    ONE_SHOT: ("READY,", "sum = sum + terms[peer]", "out[i] = sum", "DONE,"),
    TWO_SHOT: ("READY,", "add_for_all(in", "add_for_all(in", "DONE,"),
    TREE: ("if (leaf && peer == 0)", "sum[u] = sum[u] + term[u]", "] = total;", "own[block + DONE + 1] = before"),
}
