"""Attention's backward pass, dQ, dK and dV from dO: from P and dS in memory to flash attention, and PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernels.attention import common as attention
from kernels.attention import cpu as attention_cpu
from kernels.attention import revealing
from kernels.attention.backward import common, cpu, hopper, library, reference, tensor_cores
from kernels.attention.backward.presets import BACKWARD_PRESETS
from kernels.attention.backward.shape import PRODUCTS, AttentionBackwardShape, parse_backward
from kernels.i18n import mark
from kernels.model.launch import ampere, ceil, launch, rung_factory
from kernels.model.program import WORKSPACE, Buffer, Launch, Program, Tiles
from kernels.model.rules import MAX_SHARED, broken, multiple_rules, shared_rules, thread_rules
from kernels.model.rung import Cost, Ladder, Rung
from kernels.model.zero import zero

GRADIENT_BLOCK = 256  # threads of a block of kernels/attention/cuda/08_softmax_gradient.cu
DOWN, ACROSS = 8, 4  # lanes of a warp over queries and keys in kernels/attention/cuda/flash_backward.cuh
WIDE = 64  # at a larger d a warp owns fewer keys: its sums have more columns


# -- programs: P and dS in HBM --------------------------------------------------------------------------
def build_naive(s: AttentionBackwardShape, tiles: Tiles) -> Program:
    square = s.B, s.H, s.N, s.N
    steps = (
        common.row_dots(s),
        _scores(s, tiles, "Q", "K", "P", s.factor, "scores"),
        _scores(s, tiles, "dO", "V", "dS", 1.0, "weight_gradients"),
        _softmax_gradient(s),
        _transposed(s, tiles, "P", "dO", "dV", "value_gradients"),
        _transposed(s, tiles, "dS", "Q", "dK", "key_gradients"),
        _values(s, tiles, "dS", "K", "dQ", "query_gradients"),
    )
    squares = (Buffer(name, WORKSPACE, square) for name in ("P", "dS"))
    return Program((*common.buffers(s), *squares), steps)


def naive_cost(s: AttentionBackwardShape, program: Program) -> Cost:
    """Returns the cost with every pass over P and dS: both are written twice, P is read twice and dS three times."""
    others = common.cost(PRODUCTS, s, Program(common.buffers(s), program.steps))
    square = 4 * s.heads * s.N**2
    return Cost(others.flops, others.bytes + 9 * square, program.nbytes(WORKSPACE))


def _scores(
    s: AttentionBackwardShape, tiles: Tiles, rows: str, cols: str, out: str, factor: float, label: str
) -> Launch:
    """Returns the launch of out = factor * rows cols^T, in the kernel of the forward pass."""
    side = tiles["TILE"]
    down = ceil(s.N, side)
    args = rows, cols, out, np.int32(s.N), np.int32(s.d), np.float32(factor), np.int32(s.causal)
    grid, function = (down, down, s.heads), attention_cpu.scores_tiled(side)
    step = launch("attention/02_scores_tiled.cu", grid, side * side, args, function, tiles)
    return replace(step, label=label)


def _softmax_gradient(s: AttentionBackwardShape) -> Launch:
    args = "L", "D", "P", "dS", np.int32(s.N), np.float32(s.factor), np.int32(s.causal)
    source, defines = "attention/08_softmax_gradient.cu", {"BLOCK": GRADIENT_BLOCK}
    return launch(source, (s.heads * s.N,), GRADIENT_BLOCK, args, cpu.softmax_gradient, defines)


def _product(
    s: AttentionBackwardShape, tiles: Tiles, source: str, function, args: tuple[str, ...], label: str
) -> Launch:
    side = tiles["TILE"]
    grid = ceil(s.d, side), ceil(s.N, side), s.heads
    extents = np.int32(s.N), np.int32(s.d), np.int32(s.causal)
    return replace(launch(source, grid, side * side, (*args, *extents), function, tiles), label=label)


def _values(s: AttentionBackwardShape, tiles: Tiles, weights: str, x: str, out: str, label: str) -> Launch:
    """Returns the launch of out = weights x, in the kernel of the forward pass."""
    function = attention_cpu.values_tiled(tiles["TILE"])
    return _product(s, tiles, "attention/02_values_tiled.cu", function, (weights, x, out), label)


def _transposed(s: AttentionBackwardShape, tiles: Tiles, weights: str, x: str, out: str, label: str) -> Launch:
    """Returns the launch of out = weights^T x."""
    function = cpu.values_transposed(tiles["TILE"])
    return _product(s, tiles, "attention/08_values_transposed.cu", function, (weights, x, out), label)


# -- programs: nothing N x N ----------------------------------------------------------------------------
def recompute_shared(s: AttentionBackwardShape, tiles: Tiles) -> int:
    """Returns the bytes of shared memory of the kernel of dK and dV, which needs more than that of dQ."""
    return 4 * (2 * s.N + 2 * s.d + 2 * tiles["BLOCK"])


def build_recompute(s: AttentionBackwardShape, tiles: Tiles) -> Program:
    block, grid = tiles["BLOCK"], (s.N, s.heads)
    steps = (
        common.row_dots(s),
        launch(
            "attention/09_recompute_keys.cu",
            grid,
            block,
            common.arguments(s, "dK", "dV"),
            cpu.recompute_keys,
            tiles,
            recompute_shared(s, tiles),
        ),
        launch(
            "attention/09_recompute_queries.cu",
            grid,
            block,
            common.arguments(s, "dQ"),
            cpu.recompute_queries,
            tiles,
            4 * (s.N + 2 * s.d + block),
        ),
    )
    return Program(common.buffers(s), steps)


def padded(s: AttentionBackwardShape) -> int:
    """Returns d padded to whole float4 for each of eight lanes."""
    return ceil(s.d, 32) * 32


def warp_keys(s: AttentionBackwardShape, tiles: Tiles) -> int:
    """Returns the keys of a warp's sums of dK or dV."""
    return min(tiles["Bc"], 32 if padded(s) <= WIDE else 16)


def flash_threads(s: AttentionBackwardShape, tiles: Tiles) -> int:
    return 64 * (tiles["Bc"] // warp_keys(s, tiles))


def flash_shared(s: AttentionBackwardShape, tiles: Tiles) -> int:
    Br, Bc, DP = tiles["Br"], tiles["Bc"], padded(s)
    return 4 * (2 * (Br + Bc) * (DP + 4) + 2 * Br * (Bc + 4))


def _own_keys(s: AttentionBackwardShape, tiles: Tiles, source: str, function, *gradients: str) -> Launch:
    """Returns the launch of a kernel whose block owns Bc keys."""
    defines = dict(tiles) | {"DP": padded(s), "WK": warp_keys(s, tiles)}
    grid, threads = (ceil(s.N, tiles["Bc"]), s.heads), flash_threads(s, tiles)
    args = common.arguments(s, *gradients)
    return launch(source, grid, threads, args, function, defines, flash_shared(s, tiles))


def build_flash(s: AttentionBackwardShape, tiles: Tiles) -> Program:
    function = cpu.flash_backward(tiles["Br"], tiles["Bc"])
    steps = (
        common.row_dots(s),
        zero("dQ", s.heads * s.N * s.d),
        _own_keys(s, tiles, "attention/10_flash_backward.cu", function, "dQ", "dK", "dV"),
    )
    return Program(common.buffers(s), steps)


def query_rows(tiles: Tiles) -> int:
    """Returns TM of kernels/attention/cuda/11_flash_queries.cu: rows of a lane, four lanes down a warp."""
    return min(4, tiles["Br"] // 4)


def build_two_kernels(s: AttentionBackwardShape, tiles: Tiles) -> Program:
    Br, Bc, DP, TM = tiles["Br"], tiles["Bc"], padded(s), query_rows(tiles)
    shared = 4 * (2 * (Br + Bc) * (DP + 4) + Br * (Bc + 8))
    for_keys, for_queries = cpu.flash_keys(Br, Bc), cpu.flash_queries(Br, Bc)
    steps = (
        common.row_dots(s),
        _own_keys(s, tiles, "attention/11_flash_keys.cu", for_keys, "dK", "dV"),
        launch(
            "attention/11_flash_queries.cu",
            (ceil(s.N, Br), s.heads),
            Br // TM * 8,
            common.arguments(s, "dQ"),
            for_queries,
            dict(tiles) | {"DP": DP, "TM": TM},
            shared,
        ),
    )
    return Program(common.buffers(s), steps)


# -- rules ----------------------------------------------------------------------------------------------
def naive_rules(s: AttentionBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from attention.common_rules(s, max(tiles["TILE"], GRADIENT_BLOCK))
    yield from attention.square_rules(s, tiles["TILE"], "TILE")
    yield from common.dot_rules(s)


def recompute_rules(s: AttentionBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from attention.common_rules(s)
    yield from attention.head_rules(s)
    yield from common.dot_rules(s)
    yield from shared_rules("4*(2*N + 2*d + 2*BLOCK)", recompute_shared(s, tiles), MAX_SHARED)


def flash_rules(s: AttentionBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from attention.common_rules(s, max(tiles["Br"], tiles["Bc"]))
    yield from attention.head_rules(s)
    yield from common.dot_rules(s)
    if s.d <= attention.MAX_D:
        pairs = tiles["Bc"] // warp_keys(s, tiles)
        if tiles["Br"] % (DOWN * pairs):
            yield broken("Br % (8*Bc/WK) == 0", f"{tiles['Br']} % {DOWN * pairs}")
        yield from thread_rules("64*Bc/WK", flash_threads(s, tiles))
        formula = "4*(2*(Br + Bc)*(DP + 4) + 2*Br*(Bc + 4))"
        yield from shared_rules(formula, flash_shared(s, tiles), MAX_SHARED)


def two_kernel_rules(s: AttentionBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from flash_rules(s, tiles)
    yield from multiple_rules(tiles, ("Br", 4 * query_rows(tiles)))


RUNGS: tuple[Rung, ...] = (
    rung_factory("attention-backward", naive_cost, common.TOLERANCE)(
        "naive",
        mark("P and dS in memory"),
        mark(
            "P is computed once from L and kept in memory, and so is dS. Five tiled products read and write N x "
            "N matrices."
        ),
        build_naive,
        naive_rules,
        {"TILE": (32, 16, 8)},
        cpu_title=mark("weights stored, blocked products"),
        cpu_tiles=("TILE",),
    ),
    common.rung_of_two_passes(
        "recompute",
        mark("P computed again, row by row"),
        mark(
            "A block owns one key, or one query. It computes its column or row of P and dS from L. Nothing N x N "
            "is stored."
        ),
        build_recompute,
        recompute_rules,
        {"BLOCK": (256, 128)},
        cpu_title=mark("one key, then one query at a time"),
    ),
    common.rung(
        "flash",
        mark("flash backward, dQ by atomics"),
        mark(
            "A block owns a tile of keys and its dK and dV in registers. Queries pass by. Parts of dQ are added "
            "atomically."
        ),
        build_flash,
        flash_rules,
        {"Br": (64, 32, 16, 8), "Bc": (64, 32, 16)},
        {"Br": 8, "Bc": 16},
        {"Bc": 32},
        capability=ampere,
        cpu_title=mark("flash backward, tiles of keys"),
        cpu_tiles=("Br", "Bc"),
    ),
    common.rung_of_two_passes(
        "flash-two-kernels",
        mark("flash backward, two kernels"),
        mark(
            "One kernel owns keys, for dK and dV. Another owns queries, for dQ. No atomics: every run gives the "
            "same bits."
        ),
        build_two_kernels,
        two_kernel_rules,
        {"Br": (64, 32, 16, 8), "Bc": (64, 32, 16)},
        {"Br": 8, "Bc": 16},
        {"Bc": 32},
        capability=ampere,
        cpu_title=mark("flash backward, tiles of keys, then of queries"),
        cpu_tiles=("Br", "Bc"),
    ),
)

LADDER = Ladder(
    name="attention-backward",
    work=mark("the five products of attention's backward pass"),
    shape=AttentionBackwardShape,
    parse=parse_backward,
    reference=reference.backward,
    revealing=revealing.inputs,
    derive=reference.saved,
    presets=BACKWARD_PRESETS,
    rungs=(*RUNGS, *tensor_cores.RUNGS, *hopper.RUNGS, *library.RUNGS),
    swept=("backward-toy", "backward-2048"),
)
