"""Attention's forward pass in training as a scene: as without L, and each row also stores the logarithm of its sum of
exponentials. The backward pass computes the weights again from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from kernels.attention.lse.shape import LseShape
from kernels.i18n import mark
from kernels.ladders import find
from visuals.attention import flash, unfused, unfused_steps
from visuals.attention.flash_numbers import Tile, compute_block
from visuals.attention.flash_steps import FlashSteps
from visuals.attention.plan import LSE, part_of, plan_of
from visuals.scene import why_not as scene_why_not
from visuals.scene.parts import Group, Tensor
from visuals.scene.recorder import matrix
from visuals.scene.requests import WORD
from visuals.scene.scene import Scene

BLOCKED = "attention-lse/blocked"
LN2 = np.float32(0.693147181)


def lse_scene(s: LseShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of a rung; missing tile sizes are its defaults. inputs: Q, K, V, float32 [B, H, N, d], of which head 0
    of sequence 0 is used. Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    head = {name: np.asarray(inputs[name], np.float32)[0, 0] for name in "QKV"}
    return SCENES[rung](s, find(rung).check(s, tiles), head)


def why_not(s: LseShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    return scene_why_not.why_not(rung, s, tiles, SCENES)


# -- S and P in memory ----------------------------------------------------------------------------------
class Blocked(unfused.Blocked):
    """As attention/blocked; the softmax also stores L of each row."""

    TEMPLATES = MappingProxyType(
        {
            **unfused.Blocked.TEMPLATES,
            "L": mark(
                "One lane stores [L](output)[{0}] = m + log(l) = {1} + {2} = {3}. With it each weight of the row is exp({S} − L)."
            ),
        }
    )
    MARKS = (
        *((n, "P[key] = key < keys" if mark == "P[key] = weight(" else mark) for n, mark in unfused.Blocked.MARKS),
        (1, "if (lane == 0) L[row]"),
    )
    MARK_OF = MappingProxyType({**unfused.Blocked.MARK_OF, "L": len(unfused.Blocked.MARKS)})

    def row_done(self, i: int, warp: int) -> None:
        n = self.n
        log = np.log(n.l[i])
        self.r.step("L", i, n.m[i], log, n.m[i] + log, warp=warp, mask=1, written=WORD)
        self.r.look("m", np.array([i]))
        self.r.look("l", np.array([i]))
        self.r.put("L", n.m[i] + log, np.array([i]))

    def tensors(self) -> tuple[Tensor, ...]:
        s = self.s
        return (*super().tensors(), matrix("L", "output", (self.rows, 1), (0, 0), (s.N, 1)))

    def groups(self) -> tuple[Group, ...]:
        first, *others = super().groups()
        (row, *more) = first.rows
        return (replace(first, rows=((*row, "L"), *more)), *others)


def blocked_scene(s: LseShape, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]) -> Scene:
    return unfused_steps.scene_of(Blocked(s, tiles, head), BLOCKED)


# -- flash attention ------------------------------------------------------------------------------------
def row_sums(state: Tile) -> np.ndarray:
    """Returns L of each row, float32, as the kernel computes it from the state after the last tile: m is of powers of 2."""
    return (state.m + np.log2(state.l)) * LN2


class LseSteps(FlashSteps):
    """As the steps of attention/flash-registers; each row also stores L."""

    def more_tensors(self) -> tuple[Tensor, ...]:
        q = self.part.queries
        return (matrix("L", "output", (len(q), 1), (q.start, 0), (self.s.N, 1)),)

    def _row_sums(self, w) -> None:
        row, last = self.row, w.last
        log, L = np.log2(last.l[row]), row_sums(last)
        self._step("L", self.i, last.m[row], log, L[row], self.inside, written=WORD * self.inside)
        self.r.look("m", np.arange(len(w.O)))
        self.r.look("l", np.arange(len(w.O)))
        rows = self._block_rows()
        first = self.part.queries.start + rows.start
        if len(rows) != len(w.O):  # also of the queries that are not followed
            w = compute_block(self.s, self.plan, self.head, range(first, first + len(rows)))
        self._put_L(w)

    def _store_block(self, w) -> None:
        super()._store_block(w)
        self._put_L(w)

    def _put_L(self, w) -> None:
        values, first = row_sums(w.last), w.q0 - self.part.queries.start
        self.r.put("L", values, first + np.arange(len(values)))


def flash_scene(s: LseShape, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]) -> Scene:
    plan = plan_of(s, LSE, tiles)
    return flash.scene_of(LseSteps(s, plan, part_of(s, plan), head), LSE, tiles)


SCENES = {BLOCKED: blocked_scene, LSE: flash_scene}
