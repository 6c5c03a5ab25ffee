"""Flash attention's backward pass as a scene. A tile of keys stays on the stage and queries pass by: P is computed again from
L, dS follows, and dV, dK and dQ grow. Rungs with a second kernel for dQ then keep queries, and the keys pass by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark, tr, trn
from kernels.ladders import find
from visuals.attention.backward.captions import LINES
from visuals.attention.backward.flash_steps import FlashBackwardSteps
from visuals.attention.backward.parts import global_group, in_global, sources_of, tile
from visuals.attention.backward.plan import MAX_TILE, part_of, plan_of
from visuals.attention.parts import scene_key
from visuals.scene.parts import Annotation, Captions, Group, Reading, Tensor
from visuals.scene.scene import Scene

ORDER_NOTE = mark(
    "The picture follows one block and takes all its threads through each step together. On a GPU the warps of a block take turns, "
    "and many blocks run at once."
)


def flash_scene(
    s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]
) -> Scene:
    """Returns the scene of a rung of flash attention. head: Q, K, V, dO, O float32 [N, d] and L [N]."""
    plan = plan_of(s, rung, tiles)
    flash = FlashBackwardSteps(s, plan, part_of(s, plan), head)
    r = flash.r
    source, later = sources_of(r, find(rung).build(s, tiles).launches, LINES[rung])
    return Scene(
        key=scene_key(s, rung, tiles),
        title=tr(find(rung).title),
        tensors=_tensors(flash),
        groups=_groups(flash),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("explaining order"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        annotations=_annotations(flash),
        readings=_readings(flash),
        captions=r.captions(),
        source=source,
        next_sources=later,
    )


def _readings(flash: FlashBackwardSteps) -> tuple[Reading, ...]:
    counters = {
        "read": tr("bytes loaded by the followed blocks"),
        "written": tr("bytes of gradients stored"),
        "added": tr("bytes added by atomics"),
    }
    return tuple(
        Reading(label, flash.r.so_far(name), "predicted")
        for name, label in counters.items()
        if name != "added" or flash.plan.atomic
    )


def _tensors(flash: FlashBackwardSteps) -> tuple[Tensor, ...]:
    s, part, head, cols = flash.s, flash.part, flash.head, flash.part.cols
    rows, keys = flash.rows_shown, flash.keys_shown
    of_queries = [in_global(name, s, part.queries, cols, head) for name in ("Q", "dO", "O", "L")]
    of_keys = [in_global(name, s, part.keys, cols, head) for name in ("K", "V")]
    results = [in_global(name, s, part.queries, cols) for name in ("D", "dQ")]
    results += [in_global(name, s, part.keys, cols) for name in ("dK", "dV")]
    in_tile = (
        tile("Qs", "tile_q", "input", (rows, cols)),
        tile("dOs", "tile_do", "input", (rows, cols)),
        tile("Ks", "tile_k", "filter", (keys, cols)),
        tile("Vs", "tile_v", "filter", (keys, cols)),
        tile("Ps", "P", "workspace", (rows, keys)),
        tile("dSs", "dS", "workspace", (rows, keys)),
    )
    sums = [
        tile("dv", "dv", "output", (keys, cols), tr("sum so far")),
        tile("dk", "dk", "output", (keys, cols), tr("sum so far")),
    ]
    if not flash.plan.atomic:
        sums.append(tile("dq", "dq", "output", (rows, cols), tr("sum so far")))
    return (*of_queries, *of_keys, *results, *in_tile, *sums)


def _groups(flash: FlashBackwardSteps) -> tuple[Group, ...]:
    s, part = flash.s, flash.part
    sums = ("dv", "dk") if flash.plan.atomic else ("dv", "dk", "dq")
    squares = ("Ps", "dSs")
    shared, registers = (("Qs", "dOs", "Ks", "Vs"),), (sums,)
    if flash.plan.halves:  # P and dS stay in registers
        registers = (squares, *registers)
    else:
        shared = (*shared, squares)
    block = tr("shared memory of the block")
    if max(flash.tile_sizes) > MAX_TILE:
        block = trn(
            "shared memory of the block, up to {n} row of each tile",
            "shared memory of the block, up to {n} rows of each tile",
            MAX_TILE,
        )
    return (
        global_group(s, part.keys, part.cols),
        Group(shared, "shared", block),
        Group(registers, "registers", tr("registers")),
    )


def _annotations(flash: FlashBackwardSteps) -> tuple[Annotation, ...]:
    """Returns notes on P and dS: the rows that each element is computed from."""
    rows, keys, cols = flash.rows_shown, flash.keys_shown, flash.part.cols
    i, j = (index.ravel() for index in np.mgrid[:rows, :keys])
    along = np.arange(cols)
    kind, args = np.zeros(i.size, int), np.stack([i, j], axis=1)
    of_P = tr(
        "exp of row {0} of [tile_q](input) times row {1} of [tile_k](filter), times the scale, minus [L](input). 0 if the key is hidden."
    )
    of_dS = tr(
        "[P](workspace) times the difference of dP and [D](workspace). dP is row {0} of [tile_do](input) times row {1} of [tile_v](filter)."
    )
    left, right = i[:, None] * cols + along, j[:, None] * cols + along
    return (
        Annotation("Ps", Captions((of_P,), kind, args), {"Qs": left, "Ks": right}),
        Annotation("dSs", Captions((of_dS,), kind, args), {"dOs": left, "Vs": right, "Ps": (i * keys + j)[:, None]}),
    )
