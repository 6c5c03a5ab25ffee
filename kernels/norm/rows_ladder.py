"""Layer norm and RMS norm by rows, and their gradients: from three reads of a row to one, and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from kernels.i18n import mark
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, LibraryCall, Program, Tiles
from kernels.model.rung import Ladder, Rung
from kernels.model.zero import zero
from kernels.norm import cpu_rows, library, reference, revealing
from kernels.norm.common import (
    BLOCKS,
    EPSILON,
    WHOLE_WARPS,
    all_rules,
    cost_of,
    counted_row_rules,
    grid_rules,
    ints,
    library_rung,
    register_rules,
    row_rules,
    warp_rules,
    width,
)
from kernels.norm.maps_ladder import sum_partials
from kernels.norm.presets import rows_presets
from kernels.norm.reference import TOLERANCE
from kernels.norm.shape import (
    LayerNormBackwardShape,
    LayerNormShape,
    RmsNormBackwardShape,
    RmsNormShape,
    RowsShape,
    rows_parser,
)

PERS = (16, 4, 8, 32)  # floats of a thread
WARPS = {"WARPS": (8, 4, 1), "PER": (32, 8, 16, 4)}
IN_REGISTERS = {"BLOCK": WHOLE_WARPS, "PER": PERS}
BY_GRID = {"BLOCK": (512, 256, 1024, 128, 64, 32), "PER": (8, 4, 16, 32), "BLOCKS": (264, 132, 528, 12, 3)}
SWEPT = ("gpt2", "large")


def _buffers(s: RowsShape, extents: Mapping[str, tuple[int, ...]], role: str) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, role, shape) for name, shape in extents.items())


def _rows(s: RowsShape, *names: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(names, (s.M, s.N))


def forward_buffers(s: RowsShape, centred: bool) -> tuple[Buffer, ...]:
    """Returns the buffers of layer norm, or of RMS norm, which has no beta and no mean."""
    factors, saved = (("gamma", "beta"), ("mean", "invstd")) if centred else (("gamma",), ("invrms",))
    inputs = _rows(s, "x") | dict.fromkeys(factors, (s.N,))
    outputs = _rows(s, "y") | dict.fromkeys(saved, (s.M,))
    return (*_buffers(s, inputs, INPUT), *_buffers(s, outputs, OUTPUT))


def backward_buffers(s: RowsShape, centred: bool) -> tuple[Buffer, ...]:
    saved, factors = (("mean", "invstd"), ("dgamma", "dbeta")) if centred else (("invrms",), ("dgamma",))
    inputs = _rows(s, "dy", "x") | {"gamma": (s.N,)} | dict.fromkeys(saved, (s.M,))
    outputs = _rows(s, "dx") | dict.fromkeys(factors, (s.N,))
    found = (*_buffers(s, inputs, INPUT), *_buffers(s, outputs, OUTPUT))
    return tuple(replace(b, positive=b.name in ("invstd", "invrms")) for b in found)


def _names(buffers: tuple[Buffer, ...]) -> tuple[str, ...]:
    return tuple(b.name for b in buffers)


# -- forward ---------------------------------------------------------------------------------------------
def _block_a_row(source: str, cpu_function: Callable, centred: bool, cpu_name: str = ""):
    def build(s: RowsShape, tiles: Tiles) -> Program:
        buffers = forward_buffers(s, centred)
        defines = dict(tiles) | ({"WIDTH": width(s.N)} if "PER" in tiles else {})
        args = (*_names(buffers), *ints(s.N), EPSILON)
        step = launch(f"norm/{source}.cu", (s.M,), tiles["BLOCK"], args, cpu_function, defines, cpu_name=cpu_name)
        return Program(buffers, (step,))

    return build


def _warp_a_row(source: str, cpu_function: Callable, centred: bool):
    def build(s: RowsShape, tiles: Tiles) -> Program:
        buffers, warps = forward_buffers(s, centred), tiles["WARPS"]
        args = (*_names(buffers), *ints(s.M, s.N), EPSILON)
        step = launch(f"norm/{source}.cu", (ceil(s.M, warps),), 32 * warps, args, cpu_function, tiles)
        return Program(buffers, (step,))

    return build


def _library(routine: str, bind: type, buffers: Callable, *more: np.generic, centred: bool):
    def build(s: RowsShape, tiles: Tiles) -> Program:
        own = buffers(s, centred)
        return Program(own, (LibraryCall(routine, (*_names(own), *more), None, bind),))

    return build


def _rung(name: str, title: str, idea: str, build, rules, tiles, work, *sets: Tiles, **facts) -> Rung:
    return Rung(name, title, idea, build, cost_of(*work), rules, TOLERANCE, tiles, sets=sets, **facts)


IDEA_WARP = mark("A warp keeps its row in registers. Its lanes exchange sums directly. It needs no barrier.")
IDEA_REGISTERS = mark("x is read once and stays in registers. This is the minimum traffic, for rows that fit.")
NO_WARPS = mark("a processor has no warps; without them these are a few rows at a time in the cache")
FEW_ROWS = "few_rows"
LAYER_NORM = Ladder(
    name="layer-norm",
    shape=LayerNormShape,
    parse=rows_parser(LayerNormShape),
    reference=reference.layer_norm,
    revealing=revealing.rows,
    presets=rows_presets("layer-norm", LayerNormShape),
    swept=tuple(f"layer-norm-{key}" for key in SWEPT),
    rungs=(
        _rung(
            "layer-norm/three-reads",
            mark("three reads"),
            mark("Mean, variance, result: x is read three times. Trees in shared memory add the sums of the threads."),
            _block_a_row("18_ln_three_reads", cpu_rows.three_reads, centred=True),
            row_rules,
            {"BLOCK": BLOCKS},
            (3, 1, 8),
            {"BLOCK": 8},
            cpu_title=mark("three reads"),
        ),
        _rung(
            "layer-norm/welford",
            mark("Welford’s rule: two reads"),
            mark("One pass computes mean and variance together. Chan’s rule merges the threads."),
            _block_a_row("19_ln_welford", cpu_rows.welford, centred=True),
            all_rules(row_rules, counted_row_rules),
            {"BLOCK": BLOCKS},
            (2, 1, 12),
            {"BLOCK": 8},
            cpu_title=mark("Welford’s rule: two reads"),
        ),
        _rung(
            "layer-norm/warp",
            mark("one warp per row"),
            IDEA_WARP,
            _warp_a_row("20_ln_warp", cpu_rows.warp, centred=True),
            warp_rules,
            WARPS,
            (1, 1, 8),
            {"WARPS": 1, "PER": 4},
            not_on_cpu=NO_WARPS,
        ),
        _rung(
            "layer-norm/registers",
            mark("a row in registers"),
            IDEA_REGISTERS,
            _block_a_row("21_ln_registers", cpu_rows.registers, centred=True, cpu_name=FEW_ROWS),
            register_rules,
            IN_REGISTERS,
            (1, 1, 8),
            {"BLOCK": 32, "PER": 4},
            {"BLOCK": 64, "PER": 16},
            {"BLOCK": 512, "PER": 8},
            cpu_title=mark("three passes, a few rows at a time in the cache"),
        ),
        library_rung(
            "layer-norm/library",
            mark("PyTorch layer norm"),
            mark("PyTorch’s own kernel (native_layer_norm), in FP32."),
            _library("torch_layer_norm", library.LayerNorm, forward_buffers, EPSILON, centred=True),
        ),
    ),
)

RMS_NORM = Ladder(
    name="rms-norm",
    shape=RmsNormShape,
    parse=rows_parser(RmsNormShape),
    reference=reference.rms_norm,
    revealing=revealing.rows,
    presets=rows_presets("rms-norm", RmsNormShape),
    swept=tuple(f"rms-norm-{key}" for key in SWEPT),
    rungs=(
        _rung(
            "rms-norm/two-reads",
            mark("two reads"),
            mark("The mean square, then the result: x is read twice. A tree in shared memory adds the sums."),
            _block_a_row("22_rms_two_reads", cpu_rows.rms_two_reads, centred=False),
            row_rules,
            {"BLOCK": BLOCKS},
            (2, 1, 4),
            {"BLOCK": 8},
            cpu_title=mark("two reads"),
        ),
        _rung(
            "rms-norm/warp",
            mark("one warp per row"),
            IDEA_WARP,
            _warp_a_row("23_rms_warp", cpu_rows.rms_warp, centred=False),
            warp_rules,
            WARPS,
            (1, 1, 4),
            {"WARPS": 1, "PER": 4},
            not_on_cpu=NO_WARPS,
        ),
        _rung(
            "rms-norm/registers",
            mark("a row in registers"),
            IDEA_REGISTERS,
            _block_a_row("24_rms_registers", cpu_rows.rms_registers, centred=False, cpu_name=FEW_ROWS),
            register_rules,
            IN_REGISTERS,
            (1, 1, 4),
            {"BLOCK": 32, "PER": 4},
            {"BLOCK": 64, "PER": 16},
            {"BLOCK": 512, "PER": 8},
            cpu_title=mark("two passes, a few rows at a time in the cache"),
        ),
        library_rung(
            "rms-norm/library",
            mark("PyTorch RMS norm"),
            mark("PyTorch’s fused kernel (_fused_rms_norm), in FP32."),
            _library("torch_rms_norm", library.RmsNorm, forward_buffers, EPSILON, centred=False),
        ),
    ),
)


# -- backward --------------------------------------------------------------------------------------------
def _atomics(source: str, cpu_function: Callable, centred: bool):
    def build(s: RowsShape, tiles: Tiles) -> Program:
        buffers = backward_buffers(s, centred)
        args = (*_names(buffers), *ints(s.N))
        step = launch(f"norm/{source}.cu", (s.M,), tiles["BLOCK"], args, cpu_function, tiles, cpu_name="row_by_row")
        sums = ("dgamma", "dbeta") if centred else ("dgamma",)
        zeros = (
            replace(zero(name, s.N), label=f"zero of {name}", cpu_name=f"zero_{n}") for n, name in enumerate(sums, 1)
        )
        return Program(buffers, (*zeros, step))

    return build


def build_columns(s: RowsShape, tiles: Tiles) -> Program:
    rows = ("dy", "x", "gamma", "mean", "invstd", "dx", *ints(s.N))
    columns = ("dy", "x", "mean", "invstd", "dgamma", "dbeta", *ints(s.M, s.N))
    steps = (
        launch("norm/26_ln_backward_rows.cu", (s.M,), tiles["BLOCK"], rows, cpu_rows.backward_rows, tiles),
        launch("norm/27_ln_backward_columns.cu", (ceil(s.N, 32),), (32, 8), columns, cpu_rows.backward_columns),
    )
    return Program(backward_buffers(s, centred=True), steps)


def _in_registers(source: str, cpu_function: Callable, centred: bool):
    def build(s: RowsShape, tiles: Tiles) -> Program:
        buffers, blocks = backward_buffers(s, centred), min(tiles["BLOCKS"], s.M)
        sums = ("gamma", "beta") if centred else ("gamma",)
        partials = tuple(Buffer(f"partial_{name}", WORKSPACE, (blocks, s.N)) for name in sums)
        inputs = (b.name for b in buffers if b.role == INPUT)
        args = (*inputs, "dx", *_names(partials), *ints(s.M, s.N))
        defines = {"BLOCK": tiles["BLOCK"], "PER": tiles["PER"], "WIDTH": width(s.N)}
        step = launch(f"norm/{source}.cu", (blocks,), tiles["BLOCK"], args, cpu_function, defines)
        return Program((*buffers, *partials), (step, *(sum_partials(name, blocks, s.N) for name in sums)))

    return build


IDEA_ATOMICS = mark(
    "A block owns a row and computes its dx. It adds its terms of the other sums to memory by atomic additions."
)
IDEA_GRID = mark(
    "A block takes one row after the other. dy and x are read once. Each thread keeps the sums of its columns in "
    "registers. A second launch adds up the blocks."
)
NO_REGISTERS = mark("a processor has no blocks; without them dx is computed as in two launches")
GRID_SETS = ({"BLOCK": 32, "PER": 4, "BLOCKS": 3}, {"BLOCK": 256, "PER": 16}, {"BLOCKS": 528})
LAYER_NORM_BACKWARD = Ladder(
    name="layer-norm-backward",
    shape=LayerNormBackwardShape,
    parse=rows_parser(LayerNormBackwardShape),
    reference=reference.layer_norm_backward,
    derive=reference.saved_by_row,
    presets=rows_presets("layer-norm-backward", LayerNormBackwardShape),
    swept=tuple(f"layer-norm-backward-{key}" for key in SWEPT),
    rungs=(
        _rung(
            "layer-norm-backward/atomics",
            mark("one block per row, atomic additions"),
            IDEA_ATOMICS,
            _atomics("25_ln_backward_atomics", cpu_rows.backward_atomics, centred=True),
            row_rules,
            {"BLOCK": BLOCKS},
            (4, 1, 17),
            {"BLOCK": 8},
            cpu_title=mark("dx, then one row after the other added up"),
        ),
        _rung(
            "layer-norm-backward/columns",
            mark("two launches: rows, then columns"),
            mark("The first launch computes dx by rows. The second one adds up dgamma and dbeta by columns."),
            build_columns,
            row_rules,
            {"BLOCK": BLOCKS},
            (6, 1, 19),
            {"BLOCK": 8},
            cpu_title=mark("dx, then sums of columns"),
        ),
        _rung(
            "layer-norm-backward/registers",
            mark("rows in registers, sums by blocks"),
            IDEA_GRID,
            _in_registers("28_ln_backward_registers", cpu_rows.backward_registers, centred=True),
            grid_rules,
            BY_GRID,
            (2, 1, 13),
            *GRID_SETS,
            not_on_cpu=NO_REGISTERS,
        ),
        library_rung(
            "layer-norm-backward/library",
            mark("PyTorch layer norm, backward"),
            mark("PyTorch’s own kernels (native_layer_norm_backward), in FP32."),
            _library("torch_layer_norm_backward", library.LayerNormBackward, backward_buffers, centred=True),
        ),
    ),
)

RMS_NORM_BACKWARD = Ladder(
    name="rms-norm-backward",
    shape=RmsNormBackwardShape,
    parse=rows_parser(RmsNormBackwardShape),
    reference=reference.rms_norm_backward,
    derive=reference.saved_rms,
    presets=rows_presets("rms-norm-backward", RmsNormBackwardShape),
    swept=tuple(f"rms-norm-backward-{key}" for key in SWEPT),
    rungs=(
        _rung(
            "rms-norm-backward/atomics",
            mark("one block per row, atomic additions"),
            IDEA_ATOMICS,
            _atomics("29_rms_backward_atomics", cpu_rows.rms_backward_atomics, centred=False),
            row_rules,
            {"BLOCK": BLOCKS},
            (4, 1, 12),
            {"BLOCK": 8},
            cpu_title=mark("dx, then one row after the other added up"),
        ),
        _rung(
            "rms-norm-backward/registers",
            mark("rows in registers, sums by blocks"),
            IDEA_GRID,
            _in_registers("30_rms_backward_registers", cpu_rows.rms_backward_registers, centred=False),
            grid_rules,
            BY_GRID,
            (2, 1, 9),
            *GRID_SETS,
            not_on_cpu=mark("a processor has no blocks; without them these are the sums of the rows again"),
        ),
        library_rung(
            "rms-norm-backward/library",
            mark("PyTorch RMS norm, backward"),
            mark("PyTorch’s fused kernels (_fused_rms_norm_backward), in FP32."),
            _library("torch_rms_norm_backward", library.RmsNormBackward, backward_buffers, centred=False),
        ),
    ),
)
