"""Attention in three launches: S, then P as the softmax of its rows, then O as P times V. S and P are in global memory
between the launches. This module has what both rungs share; their products are in unfused.py.
"""

# ruff: noqa: E741  # O and l are the names of the paper
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from visuals import units
from visuals.attention import parts as parts
from visuals.attention.parts import MAX_WHOLE, grid
from visuals.scene.arithmetic import matmul_in_kernel_order
from visuals.scene.parts import Annotation, Captions, Group, Sum, Tensor
from visuals.scene.recorder import Recorder, matrix
from visuals.scene.requests import LANES, WORD
from visuals.scene.scene import Scene

MAX_KEYS = 32  # shown of a larger head
MAX_TERMS = 4096  # of a sum; above, several terms are added at once
ORDER_NOTES = {  # by STEP_OWNER
    "warp": mark(
        "The picture shows one warp after the other, launch after launch. On a GPU the warps of a launch run many at once, in any order. A launch "
        "starts when the launch before it is complete."
    ),
    "block": mark(
        "The picture shows one block after the other, launch after launch. On a GPU the blocks of a launch run many at once, in any order. A launch "
        "starts when the launch before it is complete."
    ),
}


@dataclass(frozen=True)
class Numbers:
    """The results of the three kernels for the visible rows, over all keys: float32 [rows, N], [rows], [rows, d]."""

    sums: np.ndarray
    S: np.ndarray
    m: np.ndarray
    l: np.ndarray
    P: np.ndarray
    O: np.ndarray


def numbers(s: SelfAttentionShape, head: Mapping[str, np.ndarray], rows: int) -> Numbers:
    """Returns each sum in the kernels' order and with their rounding. For more than MAX_TERMS keys O adds several terms at
    once. Hidden scores are -inf."""
    sums = matmul_in_kernel_order(head["Q"][:rows], head["K"].T, 1, "fp32")
    S = np.float32(s.factor) * sums
    if s.causal:
        S[np.arange(s.N) > np.arange(rows)[:, None]] = -np.inf
    m = S.max(axis=1)
    e = np.exp(S - m[:, None])
    l = parts.lanes_sum(e, LANES)
    P = e / l[:, None]
    return Numbers(sums, S, m, l, P, matmul_in_kernel_order(P, head["V"], -(-s.N // MAX_TERMS), "fp32"))


def scene_of(unfused: Unfused, rung: str) -> Scene:
    """Returns the scene of all three launches."""
    unfused.run()
    s, r, program = unfused.s, unfused.r, find(rung).build(unfused.s, unfused.tiles)
    return Scene(
        key=parts.scene_key(s, rung, unfused.tiles),
        title=tr(find(rung).title),
        tensors=unfused.tensors(),
        groups=unfused.groups(),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("launch after launch"),
        order_note=tr(ORDER_NOTES[unfused.STEP_OWNER]),
        writes=r.writes(),
        reads=r.reads(),
        sums=(unfused.values_sum(),),
        annotations=unfused.annotations(),
        readings=r.readings(parts.head_prefix(s), unfused.shared),
        captions=r.captions(),
        source=parts.joined_source(
            [step.source for step in program.launches], unfused.MARKS, r.marks(), tr("three launches")
        ),
        lanes=r.lanes(),
    )


SOFTMAX_MARKS = ((1, "m = fmaxf(m, S[key])"), (1, "l += expf(S[key] - m)"), (1, "P[key] = weight("))
SOFTMAX = {
    "max": mark(
        "One warp computes the softmax of query {0}. It reads the row of {S}, of length {1}, and keeps the largest score: m = {2}."
    ),
    "sum": mark("The warp reads the row again and adds exp({S} − m). For key 0: exp({2}) = {3}. The sum is l = {4}."),
    "row": mark("The warp reads the row a third time and writes {P} = exp({S} − m) / l. For key 0: {3} / {4} = {5}."),
    "hidden row": mark(
        "The warp reads the row a third time and writes {P} = exp({S} − m) / l. For key 0: {3} / {4} = {5}. Keys after the query are "
        "hidden: their {P} is 0, and their {S} is not read."
    ),
    "rest rows": mark("Other warps do the same for rows {0} and later of {S}."),
}
END = {
    "end": mark(
        "{O} is complete. Between the launches {S} and {P} are in global memory: {MB} per head. Each is written once and read by the next launch."
    ),
    "heads": mark(
        "{O} is complete. Between the launches {S} and {P} are in global memory: {MB} per head. Each is written once and read by the next launch. "
        "All {0} heads are computed in the same way."
    ),
}


class Unfused(ABC):
    """The steps of all three launches; subclasses have the products."""

    TEMPLATES: Mapping[str, str]
    MARKS: tuple[tuple[int, str], ...]
    MARK_OF: Mapping[str, int]  # by kind of step: index in MARKS
    STEP_OWNER: str  # "warp" or "block": does one step of a product
    shared = False

    def __init__(self, s: SelfAttentionShape, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]):
        whole = s.N <= MAX_WHOLE
        self.s, self.head, self.tiles = s, head, tiles
        self.rows, self.cols = min(s.N, MAX_WHOLE), min(s.d, MAX_WHOLE)
        self.keys = s.N if whole else min(s.N, MAX_KEYS)
        self.n = numbers(s, head, self.rows)
        values = {"TILE": tiles.get("TILE"), "MB": units.bytes_(2 * WORD * s.N * s.N)}
        self.r = Recorder(parts.fill_templates(self.TEMPLATES, self.MARK_OF, values))

    def visible_keys(self, i: np.ndarray | int) -> np.ndarray:
        """Returns how many keys query i sees."""
        i = np.asarray(i)
        return np.where((i < self.s.N) & bool(self.s.causal), i + 1, self.s.N)

    def run(self) -> None:
        self.scores()
        self.softmax()
        self.values()
        self.r.step("heads" if self.s.heads > 1 else "end", self.s.heads)

    @abstractmethod
    def scores(self) -> None:
        """Records the steps of the launch that fills S."""

    @abstractmethod
    def values(self) -> None:
        """Records the steps of the launch that fills O."""

    def rest_of_launch(self, kind: str, first_step: int, total: tuple[int, int, int], *args: float) -> None:
        """Records a step with the bytes that the steps from `first_step` on have not moved yet. total: bytes of the launch."""
        missing = {
            name: of_launch - self.r.total(name, first_step)
            for name, of_launch in zip(("read", "written", "shared"), total, strict=True)
        }
        if missing["written"]:
            self.r.step(kind, *args, **missing)

    def row_done(self, i: int, warp: int) -> None:  # noqa: B027  # only some kernels store more of a row
        """Records what the softmax stores of row i beside P."""

    def softmax(self) -> None:
        s, n, warps = self.s, self.n, 4
        for i in range(self.rows):
            keys = int(self.visible_keys(i))
            row = grid([i], range(min(keys, self.keys)), self.keys)
            gap = n.S[i, 0] - n.m[i]
            args = i, keys, gap, np.exp(gap), n.l[i], n.P[i, 0]
            step_info = {"warp": i % warps, "mask": (1 << min(keys, LANES)) - 1, "read": WORD * keys}
            self.r.step("max", i, keys, n.m[i], **step_info)
            self.r.look("S", row)
            self.r.put("m", n.m[i], np.array([i]))
            self.r.step("sum", *args, **step_info)
            self.r.look("S", row)
            self.r.put("l", n.l[i], np.array([i]))
            step_info["mask"] = (1 << min(s.N, LANES)) - 1
            self.r.step("hidden row" if keys < s.N else "row", *args, written=WORD * s.N, **step_info)
            self.r.look("S", row)
            self.r.put("P", n.P[i, : self.keys], grid([i], range(self.keys), self.keys))
            self.row_done(i, i % warps)
        if other_rows := s.N - self.rows:
            keys = int(self.visible_keys(np.arange(self.rows, s.N)).sum())
            self.r.step("rest rows", self.rows, read=3 * WORD * keys, written=WORD * other_rows * s.N)

    # -- tensors ------------------------------------------------------------------------------------
    def tensors(self) -> tuple[Tensor, ...]:
        s, R, C, D = self.s, self.rows, self.keys, self.cols
        square, flat = (s.N, s.N), (s.N, s.d)

        def one(name, role, size, whole, values=None):
            return matrix(name, role, size, (0, 0), whole, values)

        return (
            one("Q", "input", (R, D), flat, self.head["Q"][:R, :D]),
            one("K", "filter", (C, D), flat, self.head["K"][:C, :D]),
            one("V", "filter", (C, D), flat, self.head["V"][:C, :D]),
            one("O", "output", (R, D), flat),
            one("S", "workspace", (R, C), square),
            one("P", "workspace", (R, C), square),
            Tensor("m", "m", "m", "workspace", 1, R, 1),
            Tensor("l", "l", "l", "workspace", 1, R, 1),
            *self.tile_tensors(),
        )

    def tile_tensors(self) -> tuple[Tensor, ...]:
        return ()

    def groups(self) -> tuple[Group, ...]:
        return (
            Group((("Q", "K", "V", "O"),), "global", parts.global_title(self.s)),
            Group((("S", "P"),), "workspace", tr("workspace in global memory")),
            Group((("m", "l"),), "registers", tr("registers"), aligned=True),
        )

    # -- notes on cells ----------------------------------------------------------------------------
    def values_sum(self) -> Sum:
        """Returns O as a sum for the browser, over the visible keys."""
        s, R, C, D = self.s, self.rows, self.keys, self.cols
        terms = np.repeat(np.minimum(self.visible_keys(np.arange(R)), C), D)
        cell = np.repeat(np.arange(R * D), terms)
        key = np.arange(len(cell)) - np.repeat(np.cumsum(terms) - terms, terms)
        start = np.append(0, np.cumsum(terms))
        return Sum("O", "V", start, key * D + cell % D, cell // D * C + key, "P", tr("keys") if C < s.N else "")

    def annotations(self) -> tuple[Annotation, ...]:
        s, n, R, C, D = self.s, self.n, self.rows, self.keys, self.cols
        i, j = (index.ravel() for index in np.mgrid[:R, :C])
        hidden = (j >= self.visible_keys(i)).astype(int)
        S = np.where(hidden, 0, n.S[:, :C].ravel())
        args_S = np.stack([i, j, n.sums[:, :C].ravel(), np.full(R * C, s.factor)], axis=1)
        args_P = np.stack([i, j, S - n.m[i], n.l[i]], axis=1)
        score = tr("Row {0} of [Q](input) times row {1} of [K](filter) is {2}. It is multiplied by the scale {3}.")
        weight = "exp([S](workspace) − m) / l = exp({2}) / {3}."
        hidden_text = tr("Key {1} is after query {0}. It is hidden.")
        along = np.arange(D)
        rows = {"Q": i[:, None] * D + along, "K": j[:, None] * D + along}
        row_cells = {"S": np.where(hidden, -1, i * C + j), "m": i, "l": i}
        return (
            Annotation("S", Captions((score, hidden_text), hidden, args_S), rows),
            Annotation(
                "P", Captions((weight, hidden_text), hidden, args_P), {k: v[:, None] for k, v in row_cells.items()}
            ),
        )
