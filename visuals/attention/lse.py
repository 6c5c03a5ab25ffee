"""Attention's forward pass in training as a scene: as without L, and each row also stores the logarithm of its sum of
exponentials. The backward pass computes the weights again from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernels.attention.lse.shape import LseShape
from kernels.i18n import mark
from kernels.ladders import find
from kernels.model.program import Tiles
from visuals.attention.head import Head
from visuals.attention.scene import Shown, compiled
from visuals.attention.views import flash, unfused
from visuals.scene import why_not as scene_why_not
from visuals.scene.compiler.view import Buffer, Say, View, step
from visuals.scene.scene import Scene

BLOCKED, LSE = "attention-lse/blocked", "attention-lse/flash-registers"
OF_ROW = step(
    "L[row] = m + logf",
    "One lane stores [L](output)[{row}] = m + log(l) = {m} + {log(l)} = {L}. With it each weight of the row is exp([S](workspace) − L).",
    by="row",
)
OF_LANE = step(
    "L[query] = (m[i]",
    flash.OTHER_ROWS,
    Say(
        mark(
            "One lane of each row stores [L](output). For query {query}: L = (m + log2(l)) · log 2 = ({m_now} + {log2_l}) · log 2 = {L}. With it each weight of the row is exp(S − L)."
        ),
        flash.LANE,
    ),
    merge=True,
)


def lse_scene(s: LseShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of a rung; missing tile sizes are its defaults. inputs: Q, K, V, float32 [B, H, N, d], of which head 0
    of sequence 0 is used. Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    matrices = {name: np.asarray(inputs[name], np.float32)[0, 0] for name in "QKV"}
    return compiled(SCENES[rung], s, rung, find(rung).check(s, tiles), matrices)


def why_not(s: LseShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    return scene_why_not.why_not(rung, s, tiles, SCENES)


def blocked(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/blocked whose softmax also stores L."""
    view = unfused.blocked(head, tiles)
    scores, softmax, values = view.launches
    weights = replace(softmax["weights"], at="P[key] = key < keys")
    return _with_L(replace(view, launches=(scores, {**softmax, "weights": weights, "L": OF_ROW}, values)), head)


def registers(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/flash-registers that also stores L."""
    view = flash.registers(head, tiles)
    (steps,), mine = view.launches, view.names["mine"]
    names = {**view.names, "m_now": f"m[{mine}]", "log2_l": f"log(l[{mine}]) / log(2)"}
    return _with_L(replace(view, launches=({"L": OF_LANE, **steps},), names=names), head)


def _with_L(view: View, head: Head) -> View:
    (row, *rows), others = view.groups[0].rows, view.groups[1:]
    L = Buffer("L", "output", "L", shape=(head.run.N, 1), part=(head.queries, range(1)))
    groups = (replace(view.groups[0], rows=((*row, "L"), *rows)), *others)
    return replace(view, tensors=(*view.tensors, L), groups=groups)


SCENES = {BLOCKED: Shown(unfused.head, blocked), LSE: Shown(flash.registers_head, registers, flash.pairs, flash.sums)}
