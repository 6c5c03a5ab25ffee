"""An embedding and its gradient.

embedding           y[m] = table[tokens[m]].
embedding-backward  dtable: the sums of the rows of dy by token, with atomics and, sorted by token, without.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.embedding import cpu, library, reference
from kernels.embedding.presets import BACKWARD_PRESETS, FORWARD_PRESETS
from kernels.embedding.reference import TOLERANCE
from kernels.embedding.shape import EmbeddingBackwardShape, EmbeddingShape, parser
from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, LibraryCall, Program, Tiles
from kernels.model.rules import index_rules
from kernels.model.rung import Cost, Ladder, Rung
from kernels.model.zero import zero

FORWARD, BACKWARD = "embedding", "embedding-backward"
BLOCKS = (256, 128, 512, 32)
CHUNKS = (512, 256, 1024, 32, 4)  # tokens that a block compares with each other
SCAN = {"BLOCK": 1024, "PER": 8}  # of the one block that adds up the counts of all tokens


def _tokens(s: EmbeddingShape) -> Buffer:
    return Buffer("tokens", INPUT, (s.M,), "int32", below=s.V)


def forward_buffers(s: EmbeddingShape) -> tuple[Buffer, ...]:
    return (
        _tokens(s),
        Buffer("table", INPUT, (s.V, s.d), used=reference.rows_used(s) * s.d),
        Buffer("y", OUTPUT, (s.M, s.d)),
    )


def backward_buffers(s: EmbeddingBackwardShape, *others: Buffer) -> tuple[Buffer, ...]:
    return _tokens(s), Buffer("dy", INPUT, (s.M, s.d)), Buffer("dtable", OUTPUT, (s.V, s.d)), *others


# -- programs ------------------------------------------------------------------------------------------
def build_elements(s: EmbeddingShape, tiles: Tiles) -> Program:
    block, args = tiles["BLOCK"], ("tokens", "table", "y", np.int32(s.M), np.int32(s.d))
    step = launch("embedding/01_embedding.cu", (ceil(s.macs, block),), block, args, cpu.embedding, tiles)
    return Program(forward_buffers(s), (step,))


def build_rows(s: EmbeddingShape, tiles: Tiles) -> Program:
    warps, args = tiles["WARPS"], ("tokens", "table", "y", np.int32(s.M), np.int32(s.d))
    step = launch("embedding/02_embedding_rows.cu", (ceil(s.M, warps),), 32 * warps, args, cpu.embedding_rows, tiles)
    return Program(forward_buffers(s), (step,))


def build_atomics(s: EmbeddingBackwardShape, tiles: Tiles) -> Program:
    block, args = tiles["BLOCK"], ("tokens", "dy", "dtable", np.int32(s.M), np.int32(s.d))
    add = launch("embedding/03_scatter_add.cu", (ceil(s.macs, block),), block, args, cpu.scatter_add, tiles)
    return Program(backward_buffers(s), (zero("dtable", s.V * s.d), add))


def build_sorted(s: EmbeddingBackwardShape, tiles: Tiles) -> Program:
    args = "dy", "order", "first", "totals", "dtable", np.int32(s.d)
    block = {"BLOCK": tiles["BLOCK"]}
    add = launch("embedding/09_sum_tokens.cu", (s.V,), tiles["BLOCK"], args, cpu.sum_tokens, block)
    return Program(backward_buffers(s, *_sort_buffers(s, tiles)), (*_sort(s, tiles), add))


def build_runs(s: EmbeddingBackwardShape, tiles: Tiles) -> Program:
    defines, M, d = {"BLOCK": tiles["BLOCK"], "ROWS": tiles["ROWS"]}, np.int32(s.M), np.int32(s.d)
    runs = launch(
        "embedding/10_sum_runs.cu",
        (ceil(s.M, tiles["ROWS"]),),
        tiles["BLOCK"],
        ("tokens", "dy", "order", "first", "totals", "parts", "dtable", M, d),
        cpu.sum_runs(tiles["ROWS"]),
        defines,
    )
    join = launch(
        "embedding/11_join_runs.cu",
        (s.V,),
        tiles["BLOCK"],
        ("parts", "first", "totals", "dtable", d),
        cpu.join_runs(tiles["ROWS"]),
        defines,
    )
    buffers = backward_buffers(s, *_sort_buffers(s, tiles), Buffer("parts", WORKSPACE, (s.M, s.d)))
    return Program(buffers, (*_sort(s, tiles), runs, join))


def _sort_buffers(s: EmbeddingBackwardShape, tiles: Tiles) -> tuple[Buffer, ...]:
    of_chunks = ceil(s.M, tiles["CHUNK"]), s.V
    shapes = {
        "ranks": (s.M,),
        "counts": of_chunks,
        "earlier": of_chunks,
        "totals": (s.V,),
        "first": (s.V,),
        "order": (s.M,),
    }
    return tuple(Buffer(name, WORKSPACE, shape, "int32") for name, shape in shapes.items())


def _sort(s: EmbeddingBackwardShape, tiles: Tiles) -> tuple[Launch, ...]:
    """Returns the launches that sort the tokens: counts of chunks, then positions, then the order."""
    chunk, block = tiles["CHUNK"], tiles["BLOCK"]
    chunks, M, V = ceil(s.M, chunk), np.int32(s.M), np.int32(s.V)
    of_chunk, of_block = {"CHUNK": chunk}, {"BLOCK": block}
    return (
        launch(
            "embedding/04_clear.cu",
            (ceil(chunks * s.V, block),),
            block,
            ("counts", np.int64(chunks * s.V)),
            cpu.clear,
            of_block,
        ),
        launch(
            "embedding/05_rank_tokens.cu",
            (chunks,),
            chunk,
            ("tokens", "ranks", "counts", M, V),
            cpu.rank_tokens(chunk),
            of_chunk,
        ),
        launch(
            "embedding/06_chunk_totals.cu",
            (ceil(s.V, block),),
            block,
            ("counts", "earlier", "totals", np.int32(chunks), V),
            cpu.chunk_totals,
            of_block,
        ),
        launch(
            "embedding/07_first_positions.cu", (1,), SCAN["BLOCK"], ("totals", "first", V), cpu.first_positions, SCAN
        ),
        launch(
            "embedding/08_place.cu",
            (chunks,),
            chunk,
            ("tokens", "ranks", "earlier", "first", "order", M, V),
            cpu.place(chunk),
            of_chunk,
        ),
    )


def _build_library(ladder: str, buffers, bind):
    def build(s: EmbeddingShape, tiles: Tiles) -> Program:
        made = buffers(s)
        routine = f"torch_{ladder.replace('-', '_')}"
        return Program(made, (LibraryCall(routine, tuple(b.name for b in made), None, bind),))

    return build


# -- rules and cost ------------------------------------------------------------------------------------
def element_rules(s: EmbeddingShape, tiles: Tiles) -> Iterator[str]:
    yield from _grid_rules("M*d / BLOCK", ceil(s.macs, tiles["BLOCK"]))


def row_rules(s: EmbeddingShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"M": s.M}, tiles["WARPS"])
    yield from index_rules({"d": s.d}, 32 * 4 * tiles["LOADS"])


def atomic_rules(s: EmbeddingBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from element_rules(s, tiles)
    yield from _grid_rules("V*d / 256", ceil(s.V * s.d, 256))


def sort_rules(s: EmbeddingBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"M": s.M}, max(tiles["CHUNK"], tiles.get("ROWS", 1)))
    yield from index_rules({"V": s.V}, SCAN["BLOCK"] * SCAN["PER"])
    yield from index_rules({"d": s.d}, tiles["BLOCK"])
    yield from _grid_rules("chunks*V / BLOCK", ceil(ceil(s.M, tiles["CHUNK"]) * s.V, tiles["BLOCK"]))


def library_rules(s: EmbeddingShape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: PyTorch says itself what it supports."""
    return ()


def _grid_rules(formula: str, blocks: int) -> Iterator[str]:
    yield from index_rules({tr("{formula} (grid.x)", formula=formula): blocks}, 0)


def forward_cost(s: EmbeddingShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, 0)


def atomic_cost(s: EmbeddingBackwardShape, program: Program) -> Cost:
    """Returns the cost with dtable written as zeros, and each addition as a read and a write of 4 bytes."""
    return Cost(s.flops, s.bytes + 2 * 4 * s.macs, 0)


def sorted_cost(s: EmbeddingBackwardShape, program: Program) -> Cost:
    """Returns the cost with the numbers of the sort: counts are written twice and read once, the others written and read.
    Few parts of sums are stored; they are not counted."""
    sizes = {b.name: b.nbytes for b in program.buffers}
    moved = sizes["counts"] + sum(
        2 * sizes[name] for name in ("counts", "earlier", "ranks", "totals", "first", "order")
    )
    return Cost(s.flops, s.bytes + moved, program.nbytes(WORKSPACE))


def library_cost(s: EmbeddingShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the minimum traffic. PyTorch's own passes are not known."""
    return Cost(s.flops, s.bytes, None)


# -- rungs ---------------------------------------------------------------------------------------------
def _library(ladder: str, title: str, idea: str, buffers, bind, tolerance: float) -> Rung:
    return Rung(
        f"{ladder}/library",
        title,
        idea,
        _build_library(ladder, buffers, bind),
        library_cost,
        library_rules,
        tolerance,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )


FORWARD_RUNGS = (
    Rung(
        name=f"{FORWARD}/elements",
        title=mark("one thread per element"),
        idea=mark("Each thread finds its row by a division and copies one float."),
        build=build_elements,
        cost=forward_cost,
        rules=element_rules,
        tolerance=0.0,  # a copy is exact
        tiles={"BLOCK": BLOCKS},
        sets=({"BLOCK": 32},),
        cpu_title=mark("column after column"),
    ),
    Rung(
        name=f"{FORWARD}/rows",
        title=mark("one warp per row, 16 bytes per load"),
        idea=mark("A warp reads its token once and copies the row. Its lanes load 16 bytes at a time."),
        build=build_rows,
        cost=forward_cost,
        rules=row_rules,
        tolerance=0.0,
        tiles={"WARPS": (8, 4, 1, 16), "LOADS": (4, 2, 1, 8)},
        sets=({"WARPS": 1, "LOADS": 1}, {"WARPS": 4}, {"LOADS": 2}),
        cpu_title=mark("row after row (NumPy take)"),
    ),
)
BACKWARD_RUNGS = (
    Rung(
        name=f"{BACKWARD}/atomics",
        title=mark("atomic additions"),
        idea=mark(
            "Each thread adds one element of dy to the table’s gradient. Equal tokens add to the same elements, one "
            "after the other."
        ),
        build=build_atomics,
        cost=atomic_cost,
        rules=atomic_rules,
        tolerance=TOLERANCE,
        tiles={"BLOCK": BLOCKS},
        sets=({"BLOCK": 32},),
        cpu_title=mark("row after row (NumPy add.at)"),
    ),
    Rung(
        name=f"{BACKWARD}/sorted",
        title=mark("sorted by token, a block per token"),
        idea=mark(
            "The tokens are sorted without atomics: counts, positions, order. Then a block adds the rows of one token. The "
            "result is the same in every run."
        ),
        build=build_sorted,
        cost=sorted_cost,
        rules=sort_rules,
        tolerance=TOLERANCE,
        tiles={"BLOCK": BLOCKS, "CHUNK": CHUNKS},
        sets=({"BLOCK": 32, "CHUNK": 4}, {"CHUNK": 1024}),
        cpu_title=mark("sorted by token, then summed"),
        cpu_tiles=("CHUNK",),
    ),
    Rung(
        name=f"{BACKWARD}/runs",
        title=mark("sorted by token, equal blocks"),
        idea=mark(
            "A block adds ROWS neighbours of the sorted order, whatever their tokens are. A second launch joins the sums "
            "of a frequent token."
        ),
        build=build_runs,
        cost=sorted_cost,
        rules=sort_rules,
        tolerance=TOLERANCE,
        tiles={"BLOCK": (192, 256, 128, 32), "CHUNK": CHUNKS, "ROWS": (16, 8, 32, 4)},
        sets=({"BLOCK": 32, "CHUNK": 4, "ROWS": 4}, {"ROWS": 8}),
        cpu_title=mark("sorted by token, summed in equal parts"),
        cpu_tiles=("CHUNK", "ROWS"),
    ),
)
FORWARD_LIBRARY = _library(
    FORWARD,
    mark("PyTorch embedding"),
    mark("torch.index_select, which torch.nn.functional.embedding calls."),
    forward_buffers,
    library.Forward,
    0.0,
)
BACKWARD_LIBRARY = _library(
    BACKWARD,
    mark("PyTorch embedding, backward"),
    mark("The kernels of PyTorch’s backward pass: they sort the tokens, then add."),
    backward_buffers,
    library.Backward,
    TOLERANCE,
)

LADDERS = (
    Ladder(
        name=FORWARD,
        shape=EmbeddingShape,
        parse=parser(EmbeddingShape),
        reference=reference.forward,
        presets=FORWARD_PRESETS,
        rungs=(*FORWARD_RUNGS, FORWARD_LIBRARY),
        derive=reference.distributed,
        swept=("embedding-gpt2-batch",),
    ),
    Ladder(
        name=BACKWARD,
        shape=EmbeddingBackwardShape,
        parse=parser(EmbeddingBackwardShape),
        reference=reference.backward,
        presets=BACKWARD_PRESETS,
        rungs=(*BACKWARD_RUNGS, BACKWARD_LIBRARY),
        derive=reference.distributed,
        swept=("embedding-backward-gpt2-batch", "embedding-backward-equal"),
    ),
)
