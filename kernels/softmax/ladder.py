"""Softmax along the rows of a matrix: from the definition, which overflows, to a row that is read once; long rows over
several blocks; and PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.model.launch import ceil, clusters, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, LibraryCall, Program, Tiles
from kernels.model.revealing import of_rows
from kernels.model.rules import OTHER_REGISTERS, REGISTERS, index_rules, max_rules, too_many_registers
from kernels.model.rung import Cost, Ladder, Rung
from kernels.softmax import cpu, library
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.reference import TOLERANCE
from kernels.softmax.reference import softmax as reference
from kernels.softmax.shape import FLOPS, SoftmaxShape, parse_softmax

BLOCKS = (256, 128, 512, 1024, 32, 8, 4)  # powers of two: a tree halves them
# Work of a rung per element: (passes that read x, operations; an exponential counts as one).
WORK = {
    "unsafe": (2, 4),
    "three-pass": (3, 7),
    "online": (2, 9),
    "warp-shuffle": (2, 9),
    "registers": (1, FLOPS),
    "cluster": (1, FLOPS),
    "split": (2, 7),
    "one-launch": (1, FLOPS),
}
SMS = 132  # of an H100 or H200
FLOATS_BEFORE = 3  # at most, between a multiple of 16 bytes and a row
WRITES = 1  # all of them write y once


def buffers(s: SoftmaxShape) -> tuple[Buffer, ...]:
    return Buffer("x", INPUT, (s.M, s.N)), Buffer("y", OUTPUT, (s.M, s.N))


def reads(rung: str) -> int:
    """Returns how often a hand-written rung ("softmax/online") reads x."""
    return WORK[rung.partition("/")[2]][0]


# -- programs -------------------------------------------------------------------------------------------
def _block_per_row(source: str, cpu_function, cpu_name: str = ""):
    def build(s: SoftmaxShape, tiles: Tiles) -> Program:
        args = "x", "y", np.int32(s.N)
        step = launch(f"softmax/{source}.cu", (s.M,), tiles["BLOCK"], args, cpu_function, tiles, cpu_name=cpu_name)
        return Program(buffers(s), (step,))

    return build


def build_warp(s: SoftmaxShape, tiles: Tiles) -> Program:
    warps, args = tiles["WARPS"], ("x", "y", np.int32(s.M), np.int32(s.N))
    step = launch("softmax/04_warp_shuffle.cu", (ceil(s.M, warps),), 32 * warps, args, cpu.warp_shuffle, tiles)
    return Program(buffers(s), (step,))


def build_cluster(s: SoftmaxShape, tiles: Tiles) -> Program:
    """Returns a launch of a cluster for each row."""
    args = "x", "y", np.int32(s.N)
    step = launch(
        "softmax/06_cluster.cu",
        (s.M * tiles["CLUSTER"],),
        tiles["BLOCK"],
        args,
        cpu.registers,
        tiles,
        cpu_name="few_rows",
    )
    return Program(buffers(s), (step,))


def splits_of(s: SoftmaxShape, tiles: Tiles) -> int:
    """Returns how many blocks share a row: those of the grid, divided by the rows."""
    return max(1, tiles["BLOCKS"] // s.M)


def build_split(s: SoftmaxShape, tiles: Tiles) -> Program:
    """Returns the two launches, with a maximum and a sum for each part of a row between them."""
    splits = splits_of(s, tiles)
    parts = tuple(Buffer(name, WORKSPACE, (s.M, splits)) for name in ("part_m", "part_l"))
    grid, block, extents = (s.M * splits,), tiles["BLOCK"], (np.int32(s.N), np.int32(splits))
    defines = {name: tiles[name] for name in ("BLOCK", "LOADS")}
    steps = (
        launch("softmax/07_split_parts.cu", grid, block, ("x", "part_m", "part_l", *extents), cpu.split_parts, defines),
        launch(
            "softmax/08_split_finish.cu",
            grid,
            block,
            ("x", "part_m", "part_l", "y", *extents),
            cpu.split_finish,
            defines,
        ),
    )
    return Program(buffers(s) + parts, steps)


def build_one_launch(s: SoftmaxShape, tiles: Tiles) -> Program:
    """Returns the launch, with a word for the maximum and the sum of each part of a row."""
    splits = splits_of(s, tiles)
    words = Buffer("part_ml", WORKSPACE, (s.M, splits), "uint64", zeroed=True)
    args = "x", "y", "part_ml", np.int32(s.N), np.int32(splits)
    defines = {name: tiles[name] for name in ("BLOCK", "PER")}
    step = launch(
        "softmax/09_one_launch.cu", (s.M * splits,), tiles["BLOCK"], args, cpu.one_launch, defines, cpu_name="few_rows"
    )
    return Program((*buffers(s), words), (step,))


def build_library(s: SoftmaxShape, tiles: Tiles) -> Program:
    return Program(buffers(s), (LibraryCall("torch_softmax", ("x", "y"), None, library.Softmax),))


# -- cost and rules -------------------------------------------------------------------------------------
def _cost(passes: int, operations: int):
    def cost(s: SoftmaxShape, program: Program) -> Cost:
        """Returns the cost with the bytes of every pass over x and of y. Cache hits in later passes are not subtracted."""
        workspace = program.nbytes(WORKSPACE)
        return Cost(operations * s.elements, 4 * (passes + WRITES) * s.elements, workspace)

    return cost


def library_cost(s: SoftmaxShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the minimum traffic. PyTorch's own passes are not known."""
    return Cost(s.flops, s.bytes, None)


def block_rules(s: SoftmaxShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule on N: a thread's last index may be BLOCK beyond the row."""
    yield from index_rules({"N": s.N}, tiles["BLOCK"])


def warp_rules(s: SoftmaxShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"M": s.M}, tiles["WARPS"])
    yield from index_rules({"N": s.N}, 32)


def registers_rules(s: SoftmaxShape, tiles: Tiles) -> Iterator[str]:
    yield from max_rules(tr("N (a row in BLOCK*PER registers)"), s.N, tiles["BLOCK"] * tiles["PER"])


def cluster_rules(s: SoftmaxShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules on N, on the grid and on the registers of a thread."""
    block, per = tiles["BLOCK"], tiles["PER"]
    yield from max_rules(
        tr("N + {floats} (a row in CLUSTER*BLOCK*PER registers)", floats=FLOATS_BEFORE),
        s.N + FLOATS_BEFORE,
        tiles["CLUSTER"] * block * per,
    )
    yield from index_rules({tr("{formula} (grid.x)", formula="M*CLUSTER"): s.M * tiles["CLUSTER"]}, 0)
    if per + OTHER_REGISTERS > REGISTERS // block:
        yield too_many_registers(f"PER + {OTHER_REGISTERS}", per + OTHER_REGISTERS, REGISTERS // block, block)


def split_rules(s: SoftmaxShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules on N and on the grid: the last index of a thread may be two iterations of its block and a group
    of four columns in each part beyond the row."""
    splits = splits_of(s, tiles)
    yield from index_rules({"N": s.N}, 4 * (2 * tiles["BLOCK"] * tiles["LOADS"] + splits))
    yield from index_rules({tr("{formula} (grid.x)", formula="M*splits"): s.M * splits}, 0)


def one_launch_rules(s: SoftmaxShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules on M, on N and on the registers: those of a thread, and those of all blocks, which run at the same
    time on a GPU with SMS multiprocessors."""
    block, per, splits = tiles["BLOCK"], tiles["PER"], splits_of(s, tiles)
    yield from max_rules(tr("M (each row needs a block)"), s.M, tiles["BLOCKS"])
    yield from max_rules(
        tr("N + {floats} (a row in splits*BLOCK*PER registers)", floats=FLOATS_BEFORE),
        s.N + FLOATS_BEFORE,
        splits * block * per,
    )
    registers = per + OTHER_REGISTERS
    if registers > REGISTERS // block:
        yield too_many_registers(f"PER + {OTHER_REGISTERS}", registers, REGISTERS // block, block)
    yield from max_rules(
        tr(
            "{formula} (registers of blocks that run at the same time)",
            formula=f"M*splits*BLOCK*(PER + {OTHER_REGISTERS})",
        ),
        s.M * splits * block * registers,
        SMS * REGISTERS,
    )


def library_rules(s: SoftmaxShape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: PyTorch says itself what it supports."""
    return ()


def _rung(name: str, title: str, idea: str, build, rules, tiles, *sets: Tiles, **facts) -> Rung:
    return Rung(
        f"softmax/{name}", title, idea, build, _cost(*WORK[name]), rules, TOLERANCE, tiles, sets=sets or None, **facts
    )


RUNGS = (
    _rung(
        "unsafe",
        mark("unsafe: no maximum"),
        mark(
            "exp(x) without subtracting the maximum. It is right for small numbers. Above 88.72 it gives "
            "infinity and NaN."
        ),
        _block_per_row("01_unsafe", cpu.unsafe),
        block_rules,
        {"BLOCK": BLOCKS},
        cpu_title=mark("unsafe: no maximum"),
    ),
    _rung(
        "three-pass",
        mark("three passes"),
        mark(
            "Maximum, sum, result: x is read three times. Trees in shared memory combine the values of the "
            "threads of a block."
        ),
        _block_per_row("02_three_pass", cpu.three_pass),
        block_rules,
        {"BLOCK": BLOCKS},
        cpu_title=mark("three passes"),
    ),
    _rung(
        "online",
        mark("online: two passes"),
        mark("One pass computes maximum and sum. The sum is rescaled when the maximum grows."),
        _block_per_row("03_online", cpu.online),
        block_rules,
        {"BLOCK": BLOCKS},
        cpu_title=mark("online: two passes"),
    ),
    _rung(
        "warp-shuffle",
        mark("one warp per row"),
        mark(
            "As online, but the lanes of a warp exchange their values directly. It needs no shared memory and no "
            "barrier."
        ),
        build_warp,
        warp_rules,
        {"WARPS": (8, 4, 1)},
        not_on_cpu=mark("a processor has no warps; without them this is the online softmax"),
    ),
    _rung(
        "registers",
        mark("a row in registers"),
        mark("x is read once and stays in registers. This is the minimum traffic, for rows that fit."),
        _block_per_row("05_registers", cpu.registers, "few_rows"),
        registers_rules,
        {"BLOCK": (256, 128, 512, 1024, 32), "PER": (4, 8, 16, 32, 2)},
        cpu_title=mark("three passes, a few rows at a time in the cache"),
    ),
    _rung(
        "cluster",
        mark("a row in a cluster"),
        mark(
            "Several blocks keep one long row in their registers and read it once, 16 bytes at a time. They exchange "
            "maximum and sum through shared memory."
        ),
        build_cluster,
        cluster_rules,
        {"CLUSTER": (8, 4, 2), "BLOCK": (256, 512, 1024, 128, 32), "PER": (28, 32, 16, 8, 4)},
        {"CLUSTER": 2, "BLOCK": 32, "PER": 4},
        {"CLUSTER": 2, "BLOCK": 128, "PER": 8},
        {"CLUSTER": 4, "BLOCK": 512},
        {"CLUSTER": 2, "BLOCK": 1024},
        {"CLUSTER": 4, "BLOCK": 1024, "PER": 32},
        {"BLOCK": 1024, "PER": 32},
        capability=clusters,
        not_on_cpu=mark(
            "a processor has no clusters of blocks; without them this is three passes, a few rows at a time in the cache"
        ),
    ),
    _rung(
        "split",
        mark("a row in many blocks"),
        mark(
            "For rows of any length: each block computes maximum and sum of a part. A second launch merges the parts "
            "and reads x again."
        ),
        build_split,
        split_rules,
        {"BLOCKS": (512, 264, 132, 8, 4), "BLOCK": (256, 512, 1024, 128, 32), "LOADS": (8, 4, 2, 1)},
        {"BLOCKS": 4, "BLOCK": 32, "LOADS": 1},
        {"BLOCKS": 8, "BLOCK": 32, "LOADS": 1},
        {"BLOCKS": 132, "BLOCK": 1024},
        {"BLOCKS": 264, "BLOCK": 512},
        cpu_title=mark("parts of the rows, then merged"),
    ),
    _rung(
        "one-launch",
        mark("many blocks, one launch"),
        mark(
            "Each block keeps a part of a row in registers. The blocks exchange maximum and sum through global memory "
            "while they run, so x is read once."
        ),
        build_one_launch,
        one_launch_rules,
        {"BLOCKS": (528, 264, 132, 8, 4), "BLOCK": (256, 512, 1024, 128, 32), "PER": (32, 28, 16, 8, 4)},
        {"BLOCKS": 4, "BLOCK": 32, "PER": 4},
        {"BLOCKS": 8, "BLOCK": 32, "PER": 16},
        {"BLOCKS": 132, "BLOCK": 1024},
        {"BLOCKS": 264, "BLOCK": 512},
        {"BLOCKS": 528, "BLOCK": 256, "PER": 28},
        not_on_cpu=mark(
            "a processor has no blocks that wait for each other; without them this is three passes, a few rows at a time "
            "in the cache"
        ),
    ),
)
LONG = RUNGS[-3:]  # several blocks share a row

LIBRARY = Rung(
    name="softmax/library",
    title=mark("PyTorch softmax"),
    idea=mark("torch.softmax along the rows, in FP32."),
    build=build_library,
    cost=library_cost,
    rules=library_rules,
    tolerance=TOLERANCE,
    library="PyTorch",
    find_library=lambda: torch_library.find(),
    engines=("cuda",),
)

LADDER = Ladder(
    name="softmax",
    shape=SoftmaxShape,
    parse=parse_softmax,
    reference=reference,
    revealing=of_rows,
    presets=SOFTMAX_PRESETS,
    rungs=(*RUNGS, LIBRARY),
    swept=("softmax-attention", "softmax-large"),
)
