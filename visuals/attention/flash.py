"""Flash attention as a scene: a block keeps its queries and loads tiles of keys and values into shared memory one by one.
It updates each row's maximum, sum and output after each tile. S and P are drawn as N x N matrices but never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from visuals.attention import parts as parts
from visuals.attention.flash_captions import LINES
from visuals.attention.flash_steps import FlashSteps
from visuals.attention.parts import never_stored
from visuals.attention.plan import part_of, plan_of
from visuals.scene.parts import Annotation, Captions, Group, Sum, Tensor
from visuals.scene.recorder import matrix
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

ORDER_NOTE = mark(
    "The picture follows {queries}. All threads of the block take each step together. On a GPU the warps of a block take turns, "
    "and many blocks run at once."
)
TRACED = mark("The values of P and O are those that the emulator saw the kernel store.")


def flash_scene(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of attention/flash, flash-registers or flash-mma. head: Q, K, V, float32 [N, d]."""
    plan = plan_of(s, rung, tiles)
    return scene_of(FlashSteps(s, plan, part_of(s, plan), head), rung, tiles)


def scene_of(flash: FlashSteps, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of recorded steps."""
    s, plan = flash.s, flash.plan
    r, launch = flash.r, find(rung).build(s, tiles).launch()
    source = source_of(plan.file, list(LINES[rung].values()), r.marks(), detail=resources(launch))
    queries = _queries(flash)
    order_note = tr(ORDER_NOTE, queries=queries)
    return Scene(
        key=parts.scene_key(s, rung, tiles),
        title=tr(find(rung).title),
        tensors=(*_tensors(flash), *flash.more_tensors()),
        groups=_groups(flash),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("explaining order"),
        order_note=f"{order_note} {tr(TRACED)}" if flash.traced else order_note,
        writes=r.writes(),
        reads=r.reads(),
        sums=_sums(flash),
        annotations=_annotations(flash),
        readings=r.readings(f"{queries}: "),
        captions=r.captions(),
        source=source,
        finite=False,  # m begins at -inf, hidden scores are -inf
    )


def _queries(flash: FlashSteps) -> str:
    """Returns the queries of the blocks that are followed: "queries 0–3 and 12–15"."""
    s, Br = flash.s, flash.plan.Br
    ranges = [f"{b * Br:,}–{min(b * Br + Br, s.N) - 1:,}" for b in flash.part.blocks]
    if len(ranges) == 1:
        return tr("queries {range}", range=ranges[0])
    return tr("queries {first} and {second}", first=ranges[0], second=ranges[1])


def _tensors(flash: FlashSteps) -> tuple[Tensor, ...]:
    s, plan, part, head = flash.s, flash.plan, flash.part, flash.head
    R, C, D, q = part.rows, plan.Bc, part.cols, part.queries
    flat, query_size, keys = (s.N, s.d), (len(q), D), (part.keys, D)
    rows_note = (
        ""
        if plan.Br == R
        else tr("rows {first}–{last} of {all}", first=part.first, last=part.first + R - 1, all=plan.Br)
    )
    buffers_note = trn("{n} buffer", "{n} buffers", plan.stages) if plan.stages > 1 else ""

    def tensor(name, role, size, *notes, symbol="", planes=1):
        return Tensor(
            name,
            symbol or name,
            symbol or name,
            role,
            planes,
            *size,
            note=", ".join(filter(None, notes)),
            plane_name=tr("buffer") if planes > 1 else "",
        )

    def in_global(name, role, size, first, values=None):
        made = matrix(name, role, size, (first, 0), flat, values)
        if s.d == D:
            return made
        rows = tr("rows {first}–{last} of {all}", first=first, last=first + size[0] - 1, all=decimal(f"{s.N:,}"))
        return replace(made, note=trn("{n} row", "{n} rows", s.N) if size[0] == s.N else rows)

    return (
        in_global("Q", "input", query_size, q.start, head["Q"][q.start : q.stop, :D]),
        in_global("K", "filter", keys, 0, head["K"][: part.keys, :D]),
        in_global("V", "filter", keys, 0, head["V"][: part.keys, :D]),
        in_global("O", "output", query_size, q.start),
        never_stored(s, q, part.keys),
        tensor("Qs", "input", (R, D), rows_note, symbol="tile_q"),
        tensor("Ks", "filter", (C, D), buffers_note, symbol="tile_k", planes=plan.stages),
        tensor("Vs", "filter", (C, D), buffers_note, symbol="tile_v", planes=plan.stages),
        tensor("Ps", "workspace", (R, C), "" if plan.halves else rows_note, symbol="p" if plan.halves else "tile_p"),
        tensor("s", "workspace", (R, C)),
        tensor("m", "workspace", (R, 1)),
        tensor("shrink", "workspace", (R, 1), symbol="rescale"),
        tensor("l", "workspace", (R, 1)),
        tensor("o", "output", (R, D), tr("sum so far")),
    )


def _groups(flash: FlashSteps) -> tuple[Group, ...]:
    shared, registers = ("Qs", "Ks", "Vs"), (("s", "m", "shrink", "l", "o"),)
    if flash.plan.halves:  # P stays in registers
        registers = (*registers, ("Ps",))
    else:
        shared = (*shared, "Ps")
    s, cols, title = flash.s, flash.part.cols, parts.global_title(flash.s)
    if cols < s.d:
        title = tr("{memory}, columns 0–{last} of {all}", memory=title, last=cols - 1, all=s.d)
    return (
        Group((("Q", "K", "V", "O", *(t.name for t in flash.more_tensors())),), "global", title),
        Group((("SP",),)),
        Group((shared,), "shared", tr("shared memory of the block")),
        Group(registers, "registers", tr("registers, one row per query"), aligned=True),
    )


def _sums(flash: FlashSteps) -> tuple[Sum, ...]:
    """Returns the scores as sums for the browser, if none is hidden, all columns are shown and there is one stage."""
    R, C, D = flash.part.rows, flash.plan.Bc, flash.part.cols
    if flash.hidden or flash.s.d > D or flash.plan.stages > 1:
        return ()
    row, key = (index.ravel() for index in np.mgrid[:R, :C])
    cells = (key[:, None] * D + np.arange(D)).ravel()
    factors = (row[:, None] * D + np.arange(D)).ravel()
    return (Sum("s", "Ks", np.arange(0, R * C * D + 1, D), cells, factors, "Qs"),)


def _annotations(flash: FlashSteps) -> tuple[Annotation, ...]:
    """Returns notes on the cells: the tile of each pair of query and key, and the rows of each score if it is no sum."""
    s, plan, part = flash.s, flash.plan, flash.part
    i, j = (index.ravel() for index in np.meshgrid(part.queries, range(part.keys), indexing="ij"))
    tile = j // plan.Bc
    visited = np.array([plan.visited(s, int(block)) for block in i // plan.Br])
    after = (j > i) & bool(s.causal)
    kind = np.where(tile >= visited, 2, np.where(after, 1, 0))
    templates = (
        tr(
            "Query {0} and key {1} are in tile {2}. Their score and weight exist only while the block processes this tile."
        ),
        tr("Key {1} is after query {0}. It is hidden in tile {2}."),
        tr("Key {1} is after all queries of the block. All of tile {2} is hidden, so the block skips it."),
    )
    square = Annotation("SP", Captions(templates, kind, np.stack([i, j, tile + 1], axis=1)))
    if _sums(flash):
        return (square,)
    row, key = (index.ravel()[:, None] for index in np.mgrid[: part.rows, : plan.Bc])
    along = np.arange(part.cols)
    rows = {"Qs": row * part.cols + along}
    if plan.stages == 1:
        rows["Ks"] = key * part.cols + along
    score_template = tr("Row {0} of [tile_q](input) times row {1} of [tile_k](filter), or −∞ if the key is hidden.")
    score_caption = Captions((score_template,), np.zeros(len(row), int), np.hstack([row, key]))
    return square, Annotation("s", score_caption, rows)
