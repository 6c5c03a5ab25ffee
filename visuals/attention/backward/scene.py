"""Attention's backward pass as a scene: head 0 of sequence 0, compiled from what the kernels of each rung did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from kernels.attention.backward.reference import saved
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import decimal, tr, trn
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.program import Launch, Tiles
from visuals.attention.backward import flash_views, views
from visuals.attention.backward.notes import ATOMIC, TWO
from visuals.attention.backward.views import FIRST_COLS, MAX_COLS, MAX_ROWS, MAX_SQUARE, ROLES, Head
from visuals.attention.head import global_title
from visuals.scene import why_not as scene_why_not
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.scene import Scene

SCENES = {**views.VIEWS, **flash_views.VIEWS}


def backward_scene(
    s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]
) -> Scene:
    """Returns the scene of a rung; missing tile sizes are its defaults. inputs: Q, K, V, dO [B, H, N, d], of which head 0 of
    sequence 0 is used; O and L follow from them. Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    sizes = find(rung).check(s, tiles)
    head = head_of(s, sizes)
    arrays = inputs_of(head.s, inputs)
    scene = scene_of_rung(rung, head.s, sizes, arrays, SCENES[rung](head, sizes), str(s), blocks=followed(head.s))
    groups = tuple(replace(g, title=_title(s, head)) if g.memory_space == "global" else g for g in scene.groups)
    tensors = tuple(replace(t, note=_rows(s, head)) if t.name in ROLES else t for t in scene.tensors)
    explained = flash_views.squares_explained(head, sizes) if rung in (ATOMIC, TWO) else ()
    note = scene.order_note
    if head.s.N < s.N:
        text = tr(
            "The kernels ran at queries and keys 0 to {last} of {all} of this head, and the bytes are those of this run.",
            last=head.s.N - 1,
            all=decimal(f"{s.N:,}"),
        )
        note = f"{text} {note}"
    return replace(scene, groups=groups, tensors=tensors, annotations=explained, order_note=note)


def _title(s: AttentionBackwardShape, head: Head) -> str:
    """Returns the title of global memory. It names the rows if all are shown, and the columns if some are not."""
    title = global_title(s)
    if not _rows(s, head):
        title = trn("{memory}, N = {n} row", "{memory}, N = {n} rows", s.N, memory=title)
    if len(head.cols) < s.d:
        title = tr("{memory}, columns 0–{last} of {all}", memory=title, last=len(head.cols) - 1, all=s.d)
    return title


def _rows(s: AttentionBackwardShape, head: Head) -> str:
    """Returns which rows of a matrix are shown, if not all."""
    shown = len(head.rows)
    return "" if shown == s.N else tr("rows 0–{last} of {all}", last=shown - 1, all=decimal(f"{s.N:,}"))


def head_of(s: AttentionBackwardShape, tiles: Tiles) -> Head:
    """Returns one head, of a long one so many queries and keys that a tile is full, and what of it is shown."""
    longest = max(MAX_ROWS, *(tiles.get(name, 0) for name in ("Br", "Bc", "TILE")))
    one = s.with_(B=1, H=1, N=min(s.N, longest))
    rows = MAX_SQUARE if "TILE" in tiles else MAX_ROWS
    return Head(one, range(min(one.N, rows)), range(s.d if s.d <= MAX_COLS else FIRST_COLS))


def inputs_of(s: AttentionBackwardShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the first queries and keys of head 0, rounded as the kernels get them, with O and L."""
    dtype = INPUT_DTYPE[s.dtype]
    head = {
        name: np.asarray(inputs[name])[:1, :1, : s.N].astype(np.float32).astype(dtype) for name in ("Q", "K", "V", "dO")
    }
    return head | saved(s, head)


def followed(s: AttentionBackwardShape):
    """Returns a function that chooses the block of a launch that is followed: the first, or of causal keys the last, which skips
    queries."""

    def blocks(launch: Launch) -> tuple[int, ...]:
        is_last = s.causal and launch.entry in ("flash_backward", "flash_keys", "flash_mma_keys", "recompute_queries")
        return (prod(launch.grid) - 1 if is_last else 0,)

    return blocks


def why_not(s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    return scene_why_not.why_not(rung, s, tiles, SCENES)
