# fmt: off
"""What the stage shows of each kernel of attention's backward pass: of each launch one block, step by step, then the others in one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark
from kernels.model.program import Tiles
from visuals.scene.compiler.view import SHARED_MEMORY, Buffer, Bytes, Shared, Step, View, box, step
from visuals.scene.parts import Group

Launch = Mapping[str, Step]
MAX_ROWS, MAX_SQUARE, MAX_COLS, FIRST_COLS, MAX_GROUPS = 32, 16, 8, 4, 8  # shown: of a matrix, of N × N ones, columns, groups of threads
ROLES = {
    "Q": "input", "dO": "input", "O": "input", "L": "input", "D": "workspace", "K": "filter", "V": "filter",
    "dQ": "output", "dK": "output", "dV": "output",
}
GLOBAL = Group((("Q", "dO", "O", "L", "D"), ("K", "V", "dQ", "dK", "dV")), "global", mark("global memory"))
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
SHARED_BYTES = Bytes(mark("bytes to and from the block’s shared memory"), SHARED_MEMORY, "")
SAME = mark("The same is repeated {last - first + 1} times.")
ORDER = mark("launch after launch"), mark(
    "The picture follows one block of each launch. The other blocks follow in one step. On a GPU many blocks run at once, and the warps of a "
    "block take turns. All values are those of the kernel in the emulator."
)


@dataclass(frozen=True)
class Head:
    """The head that the kernels run at, and the rows and columns of it that are shown."""

    s: AttentionBackwardShape
    rows: range
    cols: range

    def tensors(self) -> tuple[Buffer, ...]:
        return tuple(self.tensor(name, role) for name, role in ROLES.items())

    def tensor(self, name: str, role: str, title: str = "") -> Buffer:
        """Returns a matrix of queries or keys and columns, or of both, or a number for each query."""
        cols = {"L": 1, "D": 1, "P": self.s.N, "dS": self.s.N}.get(name, self.s.d)
        shown = self.rows if name in ("P", "dS") else self.cols if cols > 1 else range(1)
        return Buffer(name, role, title or name, symbol=title.replace(" ", ""), shape=(self.s.N, cols), part=(self.rows, shown))


DOTS: Launch = {
    "dots": step("float sum = 0.0f",
        "First launch: [D](workspace) is the row sum of [dO](input) times [O](input), one warp per query. The lanes add products, then exchange their sums. For query 0: {sum}.",
        to="if (lane == 0) D[row] = sum", lit="if (lane == 0) D[row] = sum"),
}
OTHER_DOTS = mark("The other blocks ({others}) do the same for the other queries.")

# -- P and dS in memory ------------------------------------------------------------------------------------
SCORES: Launch = {
    "scores": step("float sum = 0.0f",
        "Block (0, 0) writes scale · [Q](input) [K](filter)ᵀ of queries 0 to {max(query)} and keys 0 to {max(key)} where [P](workspace) will be. S[0, 0] = {scale} · {sum} = {S.new}.",
        to="S[((size_t)", lit="S[((size_t)"),
}
WEIGHT_GRADIENTS: Launch = {
    "dP": step("float sum = 0.0f",
        "The same kernel, with other matrices: block (0, 0) writes dP = [dO](input) [V](filter)ᵀ where [scale · dS](workspace) will be. dP[0, 0] = {S.new}.",
        to="S[((size_t)", lit="S[((size_t)"),
}
SOFTMAX_GRADIENT: Launch = {
    "row": step("float p = 0.0f, ds",
        "The block of query 0 replaces its row. P[0, 0] = exp({P.read} − {row_l}) = {p}. scale · dS[0, 0] = scale · P · (dP − D) = {scale} · {p} · ({dS.read} − {row_d}) = {ds}.",
        to="P[key] = p, dS[key] = ds", lit="P[key] = p, dS[key] = ds", fold=SAME),
}
VALUE_GRADIENTS: Launch = {
    "dV": step("float sum = 0.0f",
        "Block (0, 0) computes a tile of [dV](output) = Pᵀ dO: column 0 of [P](workspace) times column 0 of [dO](input) is dV[0, 0] = {sum}.",
        to="Y[((size_t)", lit="sum += tile_p[query][thread_row]"),
}
KEY_GRADIENTS: Launch = {
    "dK": step("float sum = 0.0f",
        "The same kernel computes [dK](output) = scale · dSᵀ Q from [scale · dS](workspace): dK[0, 0] = {sum}.",
        to="Y[((size_t)", lit="sum += tile_p[query][thread_row]"),
}
QUERY_GRADIENTS: Launch = {
    "dQ": step("float sum = 0.0f",
        "The kernel of the forward pass computes [dQ](output) = scale · dS K: row 0 of [scale · dS](workspace) times column 0 of [K](filter) is dQ[0, 0] = {sum}.",
        to="O[((size_t)", lit="sum += tile_p[thread_row][key]"),
}
NAIVE_OTHERS = (
    OTHER_DOTS,
    mark("The other blocks ({others}) write the other scores. Blocks of hidden keys end at once."),
    mark("The other blocks write the rest of dP. Now two N × N matrices are in memory."),
    mark("The blocks of all other queries do the same. [P](workspace) and [scale · dS](workspace) are complete and stay in memory. Hidden keys have 0."),
    mark("The other blocks compute the rest of [dV](output)."),
    mark("The other blocks compute the rest of [dK](output)."),
    mark("The other blocks compute the rest of [dQ](output). [P](workspace) and [scale · dS](workspace) were each written twice. P was read twice, scale · dS three times."),
)


def naive(head: Head, tiles: Tiles) -> View:
    squares = head.tensor("P", "workspace"), head.tensor("dS", "workspace", "scale · dS")
    return View(
        (*head.tensors(), *squares), (GLOBAL, Group((("P", "dS"),), "workspace", mark("workspace in global memory"))),
        (DOTS, SCORES, WEIGHT_GRADIENTS, SOFTMAX_GRADIENT, VALUE_GRADIENTS, KEY_GRADIENTS, QUERY_GRADIENTS),
        MOVED, others=NAIVE_OTHERS, order=ORDER,
    )


# -- a row at a time -----------------------------------------------------------------------------------------
OF_KEY: Launch = {
    "own": step("key_row[threadIdx.x] = K",
        "The block owns key {key}. It loads its row of [K](filter) and of [V](filter) into shared memory. Then all threads wait at a barrier.", to="value_row[threadIdx.x] = V"),
    "column": step("float s = warp_dot(Q",
        "Each warp takes a query and computes [P](workspace) and [dS](workspace) again. For query {query}: P = exp({scale} · {s} − {L}) = {p}, dS = {p} · ({dp} − {D}) = {p * (dp - D)}.",
        to="gradients[query] = p", lit="weights[query] = p", fold=SAME),
    "sums": step("float dv = weighted_sum(",
        "All threads wait at a barrier: both columns are complete. Each group has {d} threads, one per column. Group g adds rows g, g + {BLOCK // d}, … of [dO](input) and [Q](input), times P and dS. The first group has {dv} for dV[{key}, 0].",
        to="partial[BLOCK + threadIdx.x] = dk"),
    "store": step("dV[row + threadIdx.x] =",
        "All threads wait at a barrier. Then {active} threads add the sums of the groups. They store [dV](output)[{key}, 0] = {dV} and, times the scale {scale}, [dK](output)[{key}, 0] = {dK}.",
        to="dK[row + threadIdx.x]"),
}
OF_QUERY: Launch = {
    "q_own": step("query_row[threadIdx.x] = Q",
        "Next launch, for [dQ](output): the block owns query {query}. It loads its row of [Q](input) and of [dO](input). Then all threads wait at a barrier.", to="output_row[threadIdx.x] = dO"),
    "row": step("float s = warp_dot(K",
        "Each warp takes a key and computes [dS](workspace) once more. For key {key}: P = exp({scale} · {s} − {row_l}) = {p}, dS = {p} · ({dp} − {row_d}) = {p * (dp - row_d)}.",
        to="gradients[key] = p", fold=SAME),
    "q_sums": step("partial[threadIdx.x] = weighted_sum",
        "All threads wait at a barrier: the row of [dS](workspace) is complete. Each group has {d} threads, one per column. Group g adds rows g, g + {BLOCK // d}, … of [K](filter), times dS. The first group has {at(q_partial.new, 0)}."),
    "q_store": step("dQ[row + threadIdx.x] =",
        "All threads wait at a barrier. Then {active} threads add the sums of the groups. They store [dQ](output)[{query}, 0], times the scale {scale}: {dQ}."),
}
ROWS_OTHERS = (
    OTHER_DOTS,
    mark("The other blocks ({others}) do the same, each for one key. Each reads [Q](input) and [dO](input) again. [dK](output) and [dV](output) are complete."),
    mark("The other blocks ({others}) do the same, each for one query. [dQ](output) is complete. P and dS never existed as a whole."),
)


def rows(head: Head, tiles: Tiles) -> View:
    N, d, block, R, C = head.s.N, head.s.d, tiles["BLOCK"], len(head.rows), len(head.cols)
    groups = min(block // d, N, MAX_GROUPS)
    in_block = (
        *_boxes(OF_KEY, ("key_row", "filter", "key_row", "", 2 * N, 1, C, d), ("value_row", "filter", "value_row", "", 2 * N + d, 1, C, d),
            ("weights", "workspace", "weights", mark("a column of P"), 0, 1, R, N), ("gradients", "workspace", "gradients", mark("a column of dS"), N, 1, R, N),
            ("partial_v", "output", "partial", mark("for dV"), 2 * (N + d), groups, C, d), ("partial_k", "output", "partial", mark("for dK"), 2 * (N + d) + block, groups, C, d)),
        *_boxes(OF_QUERY, ("q_gradients", "workspace", "gradients", mark("of a query: a row of dS"), 0, 1, R, N), ("q_partial", "output", "partial", mark("for dQ"), N + 2 * d, groups, C, d)),
    )
    shared = (("key_row", "value_row"), ("weights",), ("gradients",), ("q_gradients",), ("partial_v", "partial_k", "q_partial"))
    return View(
        (*head.tensors(), *in_block), (GLOBAL, Group(shared, "shared", mark("shared memory of the block"))),
        (DOTS, OF_KEY, OF_QUERY), (*MOVED, SHARED_BYTES), others=ROWS_OTHERS, order=ORDER,
    )


def _boxes(launch: Launch, *boxes: tuple[str, str, str, str, int, int, int, int]) -> tuple[Shared, ...]:
    """Returns parts of the shared memory of a launch: name, role, title, note, first element, rows, columns, and from one row to the next."""
    return tuple(
        Shared(name, role, title, note, title, of="shared", dtype="f4", during=tuple(launch), **box(first, rows, cols, pitch))
        for name, role, title, note, first, rows, cols, pitch in boxes
    )


VIEWS: Mapping[str, Callable[[Head, Tiles], View]] = {"attention-backward/naive": naive, "attention-backward/recompute": rows}
