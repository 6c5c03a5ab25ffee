"""Cross-entropy of softmax over the rows of a matrix: the loss, its gradient, and both in one step.

cross-entropy            loss and log-sum-exp from x and labels.
cross-entropy-backward   dx from x, labels, the saved log-sum-exp and g, the gradient with respect to each loss.
cross-entropy-step       loss and dx together: g is known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.cross_entropy import cpu, library, reference
from kernels.cross_entropy.presets import BACKWARD_PRESETS, FORWARD_PRESETS, STEP_PRESETS
from kernels.cross_entropy.reference import TOLERANCE
from kernels.cross_entropy.shape import CrossEntropyBackwardShape, CrossEntropyShape, CrossEntropyStepShape, parser
from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.model.launch import ceil, clusters, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, LibraryCall, Program, Tiles
from kernels.model.revealing import of_rows
from kernels.model.rules import (
    MAX_SHARED,
    OTHER_REGISTERS,
    REGISTERS,
    index_rules,
    max_rules,
    shared_rules,
    too_many_registers,
)
from kernels.model.rung import Cost, Ladder, Rung

BLOCKS = (256, 512, 1024, 128, 32)  # whole warps
LOADS = (4, 2, 1, 8)  # 16-byte loads of a thread before it uses the first
FLOAT = 4  # bytes
KEPT = (4, 16, 52, 128)  # floats of a row in the registers of a thread of a cluster
FLOATS_BEFORE = 3  # at most, between a multiple of 16 bytes and a row


# -- buffers -------------------------------------------------------------------------------------------
def _logits(s: CrossEntropyShape) -> tuple[Buffer, Buffer]:
    return Buffer("x", INPUT, (s.M, s.N)), Buffer("labels", INPUT, (s.M,), "int32", below=s.N)


def forward_buffers(s: CrossEntropyShape, *others: Buffer) -> tuple[Buffer, ...]:
    return (*_logits(s), Buffer("loss", OUTPUT, (s.M,)), Buffer("lse", OUTPUT, (s.M,)), *others)


def backward_buffers(s: CrossEntropyBackwardShape) -> tuple[Buffer, ...]:
    per_row = (Buffer("lse", INPUT, (s.M,)), Buffer("g", INPUT, (s.M,)))
    return (*_logits(s), *per_row, Buffer("dx", OUTPUT, (s.M, s.N)))


def step_buffers(s: CrossEntropyStepShape, *others: Buffer) -> tuple[Buffer, ...]:
    outputs = Buffer("loss", OUTPUT, (s.M,)), Buffer("dx", OUTPUT, (s.M, s.N))
    return (*_logits(s), Buffer("g", INPUT, (s.M,)), *outputs, *others)


# -- launches ------------------------------------------------------------------------------------------
def _rows(source: str, names: tuple[str, ...], cpu_function: Callable[..., None], cpu_name: str = ""):
    """Returns a function that builds a launch of a block per row, which takes `names` and N."""

    def step(s: CrossEntropyShape, tiles: Tiles, shared: int = 0) -> Launch:
        args = *names, np.int32(s.N)
        return launch(f"cross_entropy/{source}.cu", (s.M,), tiles["BLOCK"], args, cpu_function, tiles, shared, cpu_name)

    return step


softmax_rows = _rows("01_softmax_rows", ("x", "p", "lse"), cpu.softmax_rows)
two_pass = _rows("04_two_pass", ("x", "labels", "loss", "lse"), cpu.two_pass)
online = _rows("05_online", ("x", "labels", "loss", "lse"), cpu.online)
gradient_rows = _rows("09_gradient_rows", ("x", "labels", "lse", "g", "dx"), cpu.gradient_rows)
fused_step = _rows("10_fused_step", ("x", "labels", "g", "loss", "dx"), cpu.fused_step)
shared_row = _rows("11_shared_row", ("x", "labels", "g", "loss", "dx"), cpu.fused_step, "fused_step")


def build_unfused(s: CrossEntropyShape, tiles: Tiles) -> Program:
    block = tiles["BLOCK"]
    matrices = Buffer("p", WORKSPACE, (s.M, s.N)), Buffer("log_p", WORKSPACE, (s.M, s.N))
    steps = (
        softmax_rows(s, tiles),
        launch(
            "cross_entropy/02_logarithm.cu",
            (ceil(s.elements, block),),
            block,
            ("p", "log_p", np.int64(s.elements)),
            cpu.logarithm,
            tiles,
        ),
        launch(
            "cross_entropy/03_pick.cu",
            (ceil(s.M, block),),
            block,
            ("log_p", "labels", "loss", np.int32(s.M), np.int32(s.N)),
            cpu.pick,
            tiles,
        ),
    )
    return Program(forward_buffers(s, *matrices), steps)


def build_two_pass(s: CrossEntropyShape, tiles: Tiles) -> Program:
    return Program(forward_buffers(s), (two_pass(s, tiles),))


def build_online(s: CrossEntropyShape, tiles: Tiles) -> Program:
    return Program(forward_buffers(s), (online(s, tiles),))


def build_split(s: CrossEntropyShape, tiles: Tiles) -> Program:
    splits, block = tiles["SPLITS"], tiles["BLOCK"]
    parts = tuple(Buffer(name, WORKSPACE, (s.M, splits)) for name in ("part_m", "part_l"))
    steps = (
        launch(
            "cross_entropy/06_split_rows.cu",
            (s.M * splits,),
            block,
            ("x", "part_m", "part_l", np.int32(s.N)),
            cpu.split_rows,
            tiles,
        ),
        launch(
            "cross_entropy/07_merge_parts.cu",
            (ceil(s.M, block),),
            block,
            ("x", "labels", "part_m", "part_l", "loss", "lse", np.int32(s.M), np.int32(s.N)),
            cpu.merge_parts,
            {"BLOCK": block, "SPLITS": splits},
        ),
    )
    return Program(forward_buffers(s, *parts), steps)


def build_elements(s: CrossEntropyBackwardShape, tiles: Tiles) -> Program:
    block = tiles["BLOCK"]
    args = "x", "labels", "lse", "g", "dx", np.int32(s.M), np.int32(s.N)
    step = launch("cross_entropy/08_gradient.cu", (ceil(s.elements, block),), block, args, cpu.gradient, tiles)
    return Program(backward_buffers(s), (step,))


def build_rows(s: CrossEntropyBackwardShape, tiles: Tiles) -> Program:
    return Program(backward_buffers(s), (gradient_rows(s, tiles),))


def pieces_of(s: CrossEntropyBackwardShape, tiles: Tiles) -> int:
    """Returns how many blocks share a row."""
    return ceil(s.N + FLOATS_BEFORE, 4 * tiles["LOADS"] * tiles["BLOCK"])


def build_pieces(s: CrossEntropyBackwardShape, tiles: Tiles) -> Program:
    pieces = pieces_of(s, tiles)
    args = "x", "labels", "lse", "g", "dx", np.int32(s.N), np.int32(pieces)
    step = launch(
        "cross_entropy/12_gradient_pieces.cu",
        (s.M * pieces,),
        tiles["BLOCK"],
        args,
        cpu.gradient_pieces,
        tiles,
        cpu_name="gradient_rows",
    )
    return Program(backward_buffers(s), (step,))


def build_two_kernels(s: CrossEntropyStepShape, tiles: Tiles) -> Program:
    lse = Buffer("lse", WORKSPACE, (s.M,))
    return Program(step_buffers(s, lse), (online(s, tiles), gradient_rows(s, tiles)))


def build_fused(s: CrossEntropyStepShape, tiles: Tiles) -> Program:
    return Program(step_buffers(s), (fused_step(s, tiles),))


def build_shared_row(s: CrossEntropyStepShape, tiles: Tiles) -> Program:
    return Program(step_buffers(s), (shared_row(s, tiles, FLOAT * s.N),))


def floats_of_a_thread(s: CrossEntropyStepShape, tiles: Tiles) -> int:
    """Returns how many floats of a row each thread of a cluster keeps: the fewest of KEPT that suffice, or the most."""
    needed = ceil(s.N + FLOATS_BEFORE, tiles["CLUSTER"] * tiles["BLOCK"])
    return next((per for per in KEPT if per >= needed), KEPT[-1])


def build_cluster(s: CrossEntropyStepShape, tiles: Tiles) -> Program:
    """Returns a launch of a cluster for each row."""
    step = launch(
        "cross_entropy/13_cluster_step.cu",
        (s.M * tiles["CLUSTER"],),
        tiles["BLOCK"],
        ("x", "labels", "g", "loss", "dx", np.int32(s.N)),
        cpu.fused_step,
        {**tiles, "PER": floats_of_a_thread(s, tiles)},
        cpu_name="fused_step",
    )
    return Program(step_buffers(s), (step,))


# -- rules and cost ------------------------------------------------------------------------------------
def row_rules(s: CrossEntropyShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule on N: the last index of a thread may be a whole iteration of its block beyond the row."""
    yield from index_rules({"N": s.N}, 4 * tiles["BLOCK"] * tiles.get("LOADS", 1))


def unfused_rules(s: CrossEntropyShape, tiles: Tiles) -> Iterator[str]:
    yield from row_rules(s, tiles)
    yield from _count_rules(s, tiles, "M", s.M)
    yield from _grid_rules("M*N / BLOCK", ceil(s.elements, tiles["BLOCK"]))


def split_rules(s: CrossEntropyShape, tiles: Tiles) -> Iterator[str]:
    yield from row_rules(s, tiles)
    yield from _count_rules(s, tiles, "M", s.M)
    yield from _grid_rules("M*SPLITS", s.M * tiles["SPLITS"])


def element_rules(s: CrossEntropyBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from _grid_rules("M*N / BLOCK", ceil(s.elements, tiles["BLOCK"]))


def shared_row_rules(s: CrossEntropyStepShape, tiles: Tiles) -> Iterator[str]:
    yield from row_rules(s, tiles)
    yield from shared_rules("4*N + BLOCK/4", FLOAT * s.N + tiles["BLOCK"] // 4, MAX_SHARED)


def piece_rules(s: CrossEntropyBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from row_rules(s, tiles)
    yield from _grid_rules("M*pieces", s.M * pieces_of(s, tiles))


def cluster_rules(s: CrossEntropyStepShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules on N, on the grid and on the registers of a thread."""
    block, per = tiles["BLOCK"], floats_of_a_thread(s, tiles)
    yield from max_rules(
        tr("N + {floats} (a row in CLUSTER*BLOCK*PER registers)", floats=FLOATS_BEFORE),
        s.N + FLOATS_BEFORE,
        tiles["CLUSTER"] * block * per,
    )
    yield from _grid_rules("M*CLUSTER", s.M * tiles["CLUSTER"])
    if per + OTHER_REGISTERS > REGISTERS // block:
        yield too_many_registers(f"PER + {OTHER_REGISTERS}", per + OTHER_REGISTERS, REGISTERS // block, block)


def library_rules(s: CrossEntropyShape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: PyTorch says itself what it supports."""
    return ()


def _count_rules(s: CrossEntropyShape, tiles: Tiles, formula: str, count: int) -> Iterator[str]:
    yield from index_rules({formula: count}, tiles["BLOCK"])


def _grid_rules(formula: str, blocks: int) -> Iterator[str]:
    yield from index_rules({tr("{formula} (grid.x)", formula=formula): blocks}, 0)


def _cost(matrices: int, flops_per_logit: int):
    """Returns the cost of a rung that reads or writes so many matrices [M, N] in all. Hits in a cache are not subtracted."""

    def cost(s: CrossEntropyShape, program: Program) -> Cost:
        rows = sum(b.nbytes for b in program.buffers if b.role != WORKSPACE and len(b.shape) == 1)
        workspace = program.nbytes(WORKSPACE)
        return Cost(flops_per_logit * s.elements, FLOAT * matrices * s.elements + rows, workspace)

    return cost


def library_cost(s: CrossEntropyShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the minimum traffic. PyTorch's own passes are not known."""
    return Cost(s.flops, s.bytes, None)


# -- rungs ---------------------------------------------------------------------------------------------
def _rung(ladder: str, name: str, title: str, idea: str, build, cost, rules, tiles, *sets, **facts) -> Rung:
    return Rung(f"{ladder}/{name}", title, idea, build, cost, rules, TOLERANCE, tiles, sets=sets or None, **facts)


def _library(ladder: str, title: str, idea: str, buffers, bind) -> Rung:
    def build(s: CrossEntropyShape, tiles: Tiles) -> Program:
        made = buffers(s)
        call = LibraryCall(f"torch_{ladder.replace('-', '_')}", tuple(b.name for b in made), None, bind)
        return Program(made, (call,))

    return Rung(
        name=f"{ladder}/library",
        title=title,
        idea=idea,
        build=build,
        cost=library_cost,
        rules=library_rules,
        tolerance=TOLERANCE,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )


FORWARD, BACKWARD, STEP = "cross-entropy", "cross-entropy-backward", "cross-entropy-step"
LOOP = {"BLOCK": BLOCKS, "LOADS": LOADS}
SMALL = {"BLOCK": 32, "LOADS": 1}  # to watch


FORWARD_RUNGS = (
    _rung(
        FORWARD,
        "unfused",
        mark("softmax, logarithm, pick"),
        mark("Three launches. Two matrices as large as x are written to memory for one number per row."),
        build_unfused,
        _cost(6, 7),
        unfused_rules,
        {"BLOCK": BLOCKS},
        {"BLOCK": 32},
        cpu_title=mark("softmax, logarithm, pick"),
    ),
    _rung(
        FORWARD,
        "two-pass",
        mark("one kernel, two reads"),
        mark("A block computes the maximum of a row, then the sum. No matrix is written."),
        build_two_pass,
        _cost(2, 4),
        row_rules,
        {"BLOCK": BLOCKS},
        {"BLOCK": 32},
        cpu_title=mark("maxima, then sums"),
    ),
    _rung(
        FORWARD,
        "online",
        mark("one read, online"),
        mark("One read computes maximum and sum. A thread loads 16 bytes at a time, several times in a row."),
        build_online,
        _cost(1, 4),
        row_rules,
        LOOP,
        SMALL,
        {"BLOCK": 512},
        {"BLOCK": 1024},
        {"LOADS": 2},
        cpu_title=mark("maxima and sums together"),
    ),
    _rung(
        FORWARD,
        "split",
        mark("several blocks per row"),
        mark("Each block reads a part of a row. A second launch merges the parts. Few long rows use all SMs."),
        build_split,
        _cost(1, 4),
        split_rules,
        LOOP | {"SPLITS": (16, 4, 8, 32, 64, 2)},
        SMALL | {"SPLITS": 2},
        {"SPLITS": 4},
        {"SPLITS": 32},
        cpu_title=mark("parts of the rows, then merged"),
    ),
)
BACKWARD_RUNGS = (
    _rung(
        BACKWARD,
        "elements",
        mark("one thread per element"),
        mark("Each thread computes one element from the saved log-sum-exp of its row."),
        build_elements,
        _cost(2, 3),
        element_rules,
        {"BLOCK": BLOCKS},
        {"BLOCK": 32},
        cpu_title=mark("all rows, operation after operation"),
    ),
    _rung(
        BACKWARD,
        "rows",
        mark("one block per row, 16 bytes per load"),
        mark("A block loads label, log-sum-exp and g of its row once. Its threads load and store 16 bytes at a time."),
        build_rows,
        _cost(2, 3),
        row_rules,
        LOOP,
        SMALL,
        {"BLOCK": 512},
        {"LOADS": 2},
        cpu_title=mark("a few rows at a time in the cache"),
    ),
    _rung(
        BACKWARD,
        "pieces",
        mark("one block per piece of a row"),
        mark(
            "A block handles a short piece of a row and ends. At any time the GPU works on one contiguous region, as a "
            "copy does."
        ),
        build_pieces,
        _cost(2, 3),
        piece_rules,
        {"BLOCK": (128, 256, 512, 1024, 32), "LOADS": (2, 1, 4)},
        SMALL,
        {"LOADS": 1},
        not_on_cpu=mark("the order of blocks is a matter of a GPU; without it these are a few rows at a time"),
    ),
)
STEP_RUNGS = (
    _rung(
        STEP,
        "two-kernels",
        mark("loss, then gradient"),
        mark("Two launches. The first writes loss and log-sum-exp. The second reads x again."),
        build_two_kernels,
        _cost(3, 7),
        row_rules,
        LOOP,
        SMALL,
        cpu_title=mark("losses of all rows, then gradients"),
    ),
    _rung(
        STEP,
        "fused",
        mark("one kernel, two reads"),
        mark("A block reads its row for the loss and again for the gradient."),
        build_fused,
        _cost(3, 7),
        row_rules,
        LOOP,
        SMALL,
        {"BLOCK": 1024},
        cpu_title=mark("loss and gradient, a few rows at a time"),
    ),
    _rung(
        STEP,
        "shared-row",
        mark("one read, the row in shared memory"),
        mark("The row stays in shared memory between loss and gradient. x is read once."),
        build_shared_row,
        _cost(2, 7),
        shared_row_rules,
        {"BLOCK": (1024, 512, 256, 128, 32), "LOADS": LOADS},
        SMALL,
        {"BLOCK": 512},
        {"BLOCK": 256},
        {"LOADS": 2},
        not_on_cpu=mark("a processor has no shared memory; without it this is loss and gradient, a few rows at a time"),
    ),
    _rung(
        STEP,
        "cluster",
        mark("one read, the row in a cluster"),
        mark(
            "Several blocks keep a row in their registers and exchange maximum and sum. An SM has blocks of several "
            "rows, so loads and stores overlap."
        ),
        build_cluster,
        _cost(2, 7),
        cluster_rules,
        {"CLUSTER": (8, 4, 2), "BLOCK": (128, 256, 512, 32)},
        {"CLUSTER": 2, "BLOCK": 32},
        {"BLOCK": 256},
        capability=clusters,
        not_on_cpu=mark(
            "a processor has no clusters of blocks; without them this is loss and gradient, a few rows at a time"
        ),
    ),
)

FORWARD_LIBRARY = _library(
    FORWARD,
    mark("PyTorch cross_entropy"),
    mark("torch.nn.functional.cross_entropy, in FP32: log-softmax to memory, then one number of each row."),
    forward_buffers,
    library.Forward,
)
BACKWARD_LIBRARY = _library(
    BACKWARD,
    mark("PyTorch cross_entropy, backward"),
    mark("The two kernels of PyTorch’s backward pass, in FP32, from log-softmax of all logits."),
    backward_buffers,
    library.Backward,
)
STEP_LIBRARY = _library(
    STEP,
    mark("PyTorch cross_entropy, both passes"),
    mark("The kernels of PyTorch’s forward and backward pass, in FP32."),
    step_buffers,
    library.Step,
)


def saved(s: CrossEntropyBackwardShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the log-sum-exp that the forward kernel saved."""
    return {"lse": reference.log_sum_exp(inputs["x"])}


LADDERS = (
    Ladder(
        name=FORWARD,
        shape=CrossEntropyShape,
        parse=parser(CrossEntropyShape),
        reference=reference.forward,
        revealing=of_rows,
        presets=FORWARD_PRESETS,
        rungs=(*FORWARD_RUNGS, FORWARD_LIBRARY),
        swept=("ce-gpt2", "ce-few"),
    ),
    Ladder(
        name=BACKWARD,
        shape=CrossEntropyBackwardShape,
        parse=parser(CrossEntropyBackwardShape),
        reference=reference.backward,
        presets=BACKWARD_PRESETS,
        rungs=(*BACKWARD_RUNGS, BACKWARD_LIBRARY),
        derive=saved,
        swept=("ce-backward-gpt2",),
    ),
    Ladder(
        name=STEP,
        shape=CrossEntropyStepShape,
        parse=parser(CrossEntropyStepShape),
        reference=reference.step,
        revealing=of_rows,
        presets=STEP_PRESETS,
        rungs=(*STEP_RUNGS, STEP_LIBRARY),
        swept=("ce-step-gpt2",),
    ),
)
