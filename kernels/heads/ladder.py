"""Rows of tokens to heads and back: the copies before and after attention.

split-heads  x [N, T, parts, h, d] to the heads [N, h, T, d] of each part: queries, keys, values.
merge-heads  the inverse, which is also the gradient of the split, as the split is that of the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernels.heads import cpu, library, reference
from kernels.heads.presets import presets
from kernels.heads.shape import HeadsShape, parse_heads
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.model.fast_division import magic
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, Buffer, LibraryCall, Program, Tiles
from kernels.model.rules import index_rules
from kernels.model.rung import Cost, Ladder, Rung

SPLIT, MERGE = "split-heads", "merge-heads"
BLOCKS = {"BLOCK": (256, 128, 512, 32)}
WIDE = BLOCKS | {"PER": (4, 2, 8, 1)}  # units of a thread
_BY = ("T", "h", "d")
HEADS = np.dtype(
    [(name, "i4") for name in _BY]
    + [(f"{part}_{name}", kind) for name in _BY for part, kind in (("multiplier", "u4"), ("shift", "i4"))]
)  # Heads in cuda/heads.cuh


def buffers(ladder: str, s: HeadsShape) -> tuple[Buffer, ...]:
    """Returns the buffers in the order of the kernel's arguments: inputs, then outputs."""
    rows, heads = (INPUT, OUTPUT) if ladder == SPLIT else (OUTPUT, INPUT)
    of_rows = Buffer("x" if ladder == SPLIT else "y", rows, s.rows_shape)
    of_heads = tuple(Buffer(name, heads, s.heads_shape) for name in s.names)
    return (of_rows, *of_heads) if ladder == SPLIT else (*of_heads, of_rows)


def width(s: HeadsShape) -> int:
    """Returns how many floats move as one unit: 4 if the numbers of a head are whole float4, else 1."""
    return 1 if s.d % 4 else 4


def divided(s: HeadsShape, unit: int) -> np.generic:
    """Returns the argument `shape` of a kernel whose units are of so many floats."""
    extents = s.T, s.h, s.d // unit
    factors = [n for m in map(magic, extents) for n in (m.multiplier, m.shift)]
    return np.array([(*extents, *factors)], HEADS)[0]


def _build(ladder: str, source: str, function: Callable[..., None], wide: bool):
    def build(s: HeadsShape, tiles: Tiles) -> Program:
        made, unit = buffers(ladder, s), width(s) if wide else 1
        count, defines = s.elements // unit, {**tiles, "PARTS": s.parts} | ({"WIDTH": unit} if wide else {})
        args = *(b.name for b in made), divided(s, unit), np.int32(count)
        grid = (ceil(count, tiles["BLOCK"] * tiles.get("PER", 1)),)
        return Program(made, (launch(f"heads/{source}.cu", grid, tiles["BLOCK"], args, function, defines),))

    return build


def _build_library(ladder: str, bind: type):
    def build(s: HeadsShape, tiles: Tiles) -> Program:
        made = buffers(ladder, s)
        call = LibraryCall(f"torch_{ladder.replace('-', '_')}", tuple(b.name for b in made), None, bind)
        return Program(made, (call,))

    return build


def rules(s: HeadsShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule on the numbers: a thread's last index may be that many beyond the end."""
    yield from index_rules({"N*T*parts*h*d": s.elements}, tiles["BLOCK"] * tiles.get("PER", 1))


def no_rules(s: HeadsShape, tiles: Tiles) -> tuple[str, ...]:
    return ()


def cost(s: HeadsShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, 0)


def library_cost(s: HeadsShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, None)


# -- rungs -----------------------------------------------------------------------------------------
IDEA = mark("Each thread divides its index into the indices of token, head and number, and copies one float.")
IDEA_WIDE = mark("A head’s numbers stay neighbours. Each thread copies several units of 16 bytes.")


def _rungs(ladder: str, sources: tuple[str, str], functions: tuple, bind: type, library_idea: str):
    elements, wide = (
        _build(ladder, source, function, n == 1)
        for n, (source, function) in enumerate(zip(sources, functions, strict=True))
    )
    yield Rung(
        f"{ladder}/elements",
        mark("one thread per number"),
        IDEA,
        elements,
        cost,
        rules,
        0.0,
        BLOCKS,
        sets=({"BLOCK": 32},),
        cpu_title=mark("head after head"),
    )
    yield Rung(
        f"{ladder}/float4",
        mark("16 bytes per load, several at a time"),
        IDEA_WIDE,
        wide,
        cost,
        rules,
        0.0,
        WIDE,
        sets=({"BLOCK": 32, "PER": 1}, {"BLOCK": 128}, {"PER": 2}),
        cpu_title=mark("all heads at once, axes exchanged"),
    )
    yield Rung(
        f"{ladder}/library",
        mark("PyTorch copy"),
        library_idea,
        _build_library(ladder, bind),
        library_cost,
        no_rules,
        0.0,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )


def _ladder(name: str, of: Callable, rungs: Iterator[Rung]) -> Ladder:
    return Ladder(
        name=name,
        shape=HeadsShape,
        parse=parse_heads,
        reference=of,
        presets=presets(name),
        rungs=tuple(rungs),
        swept=(f"{name}-large",),
        matching=("parts",),
    )


LADDERS = (
    _ladder(
        SPLIT,
        reference.split,
        _rungs(
            SPLIT,
            ("01_split_elements", "02_split_float4"),
            (cpu.split_heads, cpu.split_axes),
            library.Split,
            mark("transpose and copy_ for each part, as contiguous() does."),
        ),
    ),
    _ladder(
        MERGE,
        reference.merge,
        _rungs(
            MERGE,
            ("03_merge_elements", "04_merge_float4"),
            (cpu.merge_heads, cpu.merge_axes),
            library.Merge,
            mark("copy_ of each part into a view of the rows, as contiguous() does."),
        ),
    ),
)
