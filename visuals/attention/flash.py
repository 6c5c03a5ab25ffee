"""Flash attention as a scene: a block keeps its queries, tiles of keys and values slide through shared memory, and each
row's maximum, sum and output are mended as they come. S and P are drawn where they would be, N x N, stored nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from visuals.attention import parts as steps
from visuals.attention.flash_captions import LINES
from visuals.attention.flash_steps import Steps
from visuals.attention.parts import never_stored
from visuals.attention.plan import part_of, plan_of
from visuals.scene.parts import Captions, Group, Sum, Tensor, Told
from visuals.scene.recorder import matrix
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

ORDER_NOTE = (
    "The block of {0}, all its threads together, one part of a tile's work after the other{1}. The GPU runs the warps of a "
    "block in turns, and many blocks at the same moment."
)
TRACED = ". What goes to shared and to global memory is what the emulator saw the kernel store"


def flash_scene(
    s: AttentionShape, rung: str, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]
) -> Scene:
    """attention/flash, attention/flash-registers, attention/flash-mma. head: Q, K, V, float32 [N, d]."""
    plan = plan_of(s, rung, tiles)
    flash = Steps(s, plan, part_of(s, plan), head)
    r, launch = flash.r, find(rung).build(s, tiles).steps[0]
    source = source_of(plan.file, list(LINES[rung].values()), r.marks(), detail=resources(launch))
    firsts = [block * plan.Br for block in flash.part.blocks]
    named = "queries " + " and ".join(f"{first:,}–{min(first + plan.Br, s.N) - 1:,}" for first in firsts)
    return Scene(
        key=steps.named(s, rung, tiles),
        title=find(rung).title,
        tensors=_tensors(flash),
        groups=_groups(flash),
        steps=r.steps,
        step_name="step",
        order_name="explaining order",
        order_note=ORDER_NOTE.format(named, TRACED if flash.traced else ""),
        writes=r.writes(),
        reads=r.reads(),
        sums=_sums(flash),
        told=_told(flash),
        readings=r.readings(f"{named}: "),
        captions=r.captions(),
        source=source,
        finite=False,  # m begins at -inf, hidden scores are -inf
    )


def _tensors(flash: Steps) -> tuple[Tensor, ...]:
    s, plan, part, head = flash.s, flash.plan, flash.part, flash.head
    R, C, D, q = part.rows, plan.Bc, part.cols, part.queries
    flat, mine, keys = (s.N, s.d), (len(q), D), (part.keys, D)
    wide = "" if s.d == D else f"columns 0–{D - 1} of {s.d}"
    tall = "" if plan.Br == R else f"rows {part.first}–{part.first + R - 1} of {plan.Br}"
    staged = f"{plan.stages} stages" if plan.stages > 1 else ""

    def held(name, role, size, *notes, symbol="", planes=1):
        stage = "stage" if planes > 1 else ""
        return Tensor(
            name,
            symbol or name,
            symbol or name,
            role,
            planes,
            *size,
            note=", ".join(filter(None, notes)),
            plane_name=stage,
        )

    return (
        matrix("Q", "input", mine, (q.start, 0), flat, head["Q"][q.start : q.stop, :D]),
        matrix("K", "filter", keys, (0, 0), flat, head["K"][: part.keys, :D]),
        matrix("V", "filter", keys, (0, 0), flat, head["V"][: part.keys, :D]),
        matrix("O", "output", mine, (q.start, 0), flat),
        never_stored(s, q, part.keys),
        held("Qs", "input", (R, D), tall, wide, symbol="tile_q"),
        held("Ks", "filter", (C, D), wide, staged, symbol="tile_k", planes=plan.stages),
        held("Vs", "filter", (C, D), wide, staged, symbol="tile_v", planes=plan.stages),
        held("Ps", "workspace", (R, C), "" if plan.halves else tall, symbol="p" if plan.halves else "tile_p"),
        held("s", "workspace", (R, C)),
        held("m", "workspace", (R, 1)),
        held("shrink", "workspace", (R, 1), symbol="rescale"),
        held("l", "workspace", (R, 1)),
        held("o", "output", (R, D), "O, not divided"),
    )  # fmt: skip


def _groups(flash: Steps) -> tuple[Group, ...]:
    shared, held = ("Qs", "Ks", "Vs"), ("m", "shrink", "l", "o")
    if flash.plan.halves:  # P stays in registers
        shared, held = shared, ("s", "Ps", *held)
    else:
        shared, held = (*shared, "Ps"), ("s", *held)
    return (
        Group((("Q", "K", "V", "O"),), "global", steps.global_title(flash.s)),
        Group((("SP",),)),
        Group((shared,), "shared", "shared memory of the block"),
        Group((held,), "registers", "registers, a row a query"),
    )


def _sums(flash: Steps) -> tuple[Sum, ...]:
    """Scores as the browser sums them, where none is hidden, all columns are shown and a tile has one place."""
    R, C, D = flash.part.rows, flash.plan.Bc, flash.part.cols
    if flash.hidden or flash.s.d > D or flash.plan.stages > 1:
        return ()
    row, key = (of.ravel() for of in np.mgrid[:R, :C])
    cells = (key[:, None] * D + np.arange(D)).ravel()
    factors = (row[:, None] * D + np.arange(D)).ravel()
    return (Sum("s", "Ks", np.arange(0, R * C * D + 1, D), cells, factors, "Qs"),)


def _told(flash: Steps) -> tuple[Told, ...]:
    """When each pair of a query and a key meets; and which rows make a score, where it is no sum for the browser."""
    s, plan, part = flash.s, flash.plan, flash.part
    i, j = (of.ravel() for of in np.meshgrid(part.queries, range(part.keys), indexing="ij"))
    tile = j // plan.Bc
    visited = np.array([plan.visited(s, int(block)) for block in i // plan.Br])
    after = (j > i) & bool(s.causal)
    kind = np.where(tile >= visited, 2, np.where(after, 1, 0))
    said = (
        "Query {0} and key {1} meet in tile {2}: score and weight exist while it is at hand.",
        "Key {1} comes after query {0}: hidden when tile {2} is at hand.",
        "Key {1} comes after query {0} and all others of its block, as does all of tile {2}: it is left out.",
    )
    square = Told("SP", Captions(said, kind, np.stack([i, j, tile + 1], axis=1)))
    if _sums(flash):
        return (square,)
    row, key = (of.ravel()[:, None] for of in np.mgrid[: part.rows, : plan.Bc])
    along = np.arange(part.cols)
    rows = {"Qs": row * part.cols + along}
    if plan.stages == 1:
        rows["Ks"] = key * part.cols + along
    made = "Row {0} of [tile_q](input) times row {1} of [tile_k](filter), or −∞ where the key is hidden."
    score = Captions((made,), np.zeros(len(row), int), np.hstack([row, key]))
    return square, Told("s", score, rows)
