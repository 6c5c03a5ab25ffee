"""Attention a row at a time: a block per query keeps the query's scores in shared memory and replaces them by the
weights. Then it adds up the weighted values. S and P are drawn as matrices but never stored.
"""

# ruff: noqa: E741  # O and l are the names of the paper
from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from visuals.attention import parts
from visuals.attention.parts import MAX_WHOLE, grid, lanes_sum, never_stored
from visuals.scene.parts import Annotation, Captions, Group, Number, Tensor
from visuals.scene.recorder import Recorder, matrix
from visuals.scene.requests import LANES, WORD
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

MAX_QUERIES, MAX_KEYS, MAX_GROUPS = 8, 32, 8
ORDER_NOTE = mark(
    "The picture shows the blocks one after the other. There is one block per query. All its threads take each step together. On a GPU "
    "many blocks run at once."
)
_FILE = "attention/03_fused.cu"
_TEMPLATES = MappingProxyType({
    "q": ("query_row[threadIdx.x] =", mark("The block of query {0} loads row {0} of {Q} into shared memory, multiplied by the scale {1}. Floats loaded: "
          "{2}.")),
    "scores": ("score += query_row[dim]", mark("The {WARPS} warps take the keys in turn. The lanes of a warp multiply along a row of {K}. Shuffles (exchanges "
               "between lanes) add their sums. The row of scores, of length {1}, is in shared memory. The score of key {2} is {3}. These rows of {K} are read for this "
               "query only.")),
    "max": ("m = fmaxf(m, scores[key])", mark("The threads find the largest score of query {0}: m = {2}.")),
    "exp": ("l += scores[key] =", mark("Each score in shared memory is replaced by exp(s − m). For key {2}: exp({3}) = {4}. Their sum is l = {5}.")),
    "values": ("o += scores[key]", mark("The threads form groups with one thread per column, {d} in all. Group g adds rows g, g + {GROUPS}, … of {V}, "
               "times their weights. Column 0 of the first group is {2}.")),
    "store": ("o / l;", mark("The sums of the groups are added and divided by l: {O}[{0}, 0] = {1} / {2} = {3}. Floats written to global memory: {4}. The row "
              "of scores is discarded.")),
    "others": ("o / l;", mark("All {0} blocks do the same. Each reads {K} and {V} again, up to {1} floats. S and P ({SQUARE} per head) never existed as a "
               "whole.")),
    "end": ("o / l;", mark("{O} is complete. Each block read {K} and {V} again, up to {1} floats. S and P ({SQUARE} per head) never existed as a whole.")),
})  # fmt: skip


def fused_scene(s: AttentionShape, rung: str, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of attention/fused. head: Q, K, V, float32 [N, d]."""
    fused = Fused(s, tiles["BLOCK"], head)
    fused.run()
    r, launch = fused.r, find(rung).build(s, tiles).launch()
    marks = [line for line, _ in _TEMPLATES.values()]
    return Scene(
        key=parts.scene_key(s, rung, tiles),
        title=tr(find(rung).title),
        tensors=fused.tensors(),
        groups=fused.groups(),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("query by query"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        annotations=fused.annotations(),
        readings=r.readings(parts.head_prefix(s)),
        captions=r.captions(),
        source=source_of(_FILE, marks, np.array(r.kinds), detail=resources(launch)),
    )


class Fused:
    """The steps of the first blocks."""

    def __init__(self, s: AttentionShape, block: int, head: Mapping[str, np.ndarray]):
        self.s, self.block, self.head = s, block, head
        self.whole = s.N <= MAX_WHOLE
        self.queries = min(s.N, MAX_QUERIES)
        self.rows = s.N if self.whole else self.queries
        self.keys, self.cols = (s.N if self.whole else min(s.N, MAX_KEYS)), min(s.d, MAX_WHOLE)
        self.group_count = block // s.d
        self.visible_groups = min(self.group_count, s.N, MAX_GROUPS)
        values = {"WARPS": block // LANES, "GROUPS": self.group_count, "d": s.d, "SQUARE": f"{s.N:,} × {s.N:,}"}
        self.r = Recorder(
            parts.fill_templates(
                {kind: text for kind, (_, text) in _TEMPLATES.items()}, dict.fromkeys(_TEMPLATES, 0), values
            )
        )

    def visible_keys(self, i: int) -> int:
        return i + 1 if self.s.causal else self.s.N

    def run(self) -> None:
        s = self.s
        for i in range(self.queries):
            self.query(i)
        floats, other_blocks = 2 * s.N * s.d, s.N * s.heads - self.queries
        rest = s.N - self.queries
        keys = sum(self.visible_keys(i) for i in range(self.queries, s.N))
        read, written = WORD * (rest + 2 * keys) * s.d, WORD * rest * s.d
        shared = {kind: rest * per_block + keys * per_key for kind, (per_block, per_key) in self.traffic.items()}
        kind = "others" if other_blocks else "end"
        self.r.step(kind, s.N * s.heads, floats, read=read, written=written, shared=WORD * sum(shared.values()))
        for i in range(self.queries, self.rows):
            self.store(i, self.compute(i)[-1])

    @cached_property
    def traffic(self) -> dict[str, tuple[int, int]]:
        """Floats to and from shared memory by kind of step: (per block, additionally per key)."""
        d, warps = self.s.d, self.block // LANES
        together = warps + self.block * warps  # one float per warp; each thread reads all of them
        return {
            "q": (d, 0),
            "scores": (0, d + 1),
            "max": (together, 1),
            "exp": (together, 2),
            "values": (self.block, d),
            "store": ((self.group_count - 1) * d, 0),
        }

    def compute(self, i: int) -> tuple[np.ndarray, ...]:
        """Returns q [d], scores [keys], m, weights [keys], l, the groups' sums [groups, d] and O [d] of a query, float32."""
        s, keys, groups = self.s, self.visible_keys(i), self.group_count
        q = np.float32(s.factor) * self.head["Q"][i]
        scores = lanes_sum(q * self.head["K"][:keys], LANES)
        m = scores.max()
        e = np.exp(scores - m)
        l = lanes_sum(e, LANES)
        terms = np.pad(e[:, None] * self.head["V"][:keys], ((0, -keys % groups), (0, 0)))
        group_sums = terms.reshape(-1, groups, s.d).sum(axis=0, dtype=np.float32)
        return q, scores, m, e, l, group_sums, group_sums.sum(axis=0, dtype=np.float32) / l

    def record(self, kind: str, keys: int, *args: Number, **moved: int) -> None:
        per_block, per_key = self.traffic[kind]
        self.r.step(kind, *args, shared=WORD * (per_block + keys * per_key), **moved)

    def query(self, i: int) -> None:
        s, r, C, D = self.s, self.r, self.keys, self.cols
        keys = self.visible_keys(i)
        visible = np.arange(min(keys, C))
        q, scores, m, e, l, group_sums, O = self.compute(i)
        j = int(np.argmin(scores[: len(visible)]))

        self.record("q", keys, i, s.factor, s.d, read=WORD * s.d)
        r.look("Q", grid([i], range(D), D))
        r.put("q", q[:D])
        self.record("scores", keys, i, keys, j, scores[j], read=WORD * keys * s.d)
        self.look_at_row(i, visible)
        r.look("q", np.arange(D))
        r.look("K", grid(visible, range(D), D))
        r.put("s", scores[visible], visible)
        self.record("max", keys, i, keys, m)
        self.look_at_row(i, visible)
        r.look("s", visible)
        r.put("m", m)
        self.record("exp", keys, i, keys, j, scores[j] - m, e[j], l)
        self.look_at_row(i, visible)
        r.put("s", e[visible], visible)
        r.put("l", l)
        self.record("values", keys, i, keys, group_sums[0, 0], read=WORD * keys * s.d)
        self.look_at_row(i, visible)
        r.look("s", visible)
        r.look("V", grid(visible, range(D), D))
        r.put("parts", group_sums[: self.visible_groups, :D])
        self.record("store", keys, i, group_sums[:, 0].sum(), l, O[0], s.d, written=WORD * s.d)
        r.look("parts", np.arange(self.visible_groups * D))
        self.store(i, O)

    def look_at_row(self, i: int, keys: np.ndarray) -> None:
        """Highlights the row of the matrix that exists now."""
        self.r.look("SP", grid([i], keys, self.keys))

    def store(self, i: int, O: np.ndarray) -> None:
        self.r.put("O", O[: self.cols], grid([i], range(self.cols), self.cols))

    # -- tensors ------------------------------------------------------------------------------------
    def tensors(self) -> tuple[Tensor, ...]:
        s, R, C, D, head = self.s, self.rows, self.keys, self.cols, self.head
        flat = (s.N, s.d)
        note = tr("one row per group")
        if self.visible_groups < self.group_count:
            note = tr("one row per group, {shown} of {all}", shown=self.visible_groups, all=self.group_count)
        return (
            matrix("Q", "input", (R, D), (0, 0), flat, head["Q"][:R, :D]),
            matrix("K", "filter", (C, D), (0, 0), flat, head["K"][:C, :D]),
            matrix("V", "filter", (C, D), (0, 0), flat, head["V"][:C, :D]),
            matrix("O", "output", (R, D), (0, 0), flat),
            never_stored(s, range(R), C),
            Tensor("q", "query_row", "query_row", "input", 1, 1, D, note=tr("times the scale")),
            Tensor("s", "scores", "scores", "workspace", 1, 1, C, note=tr("later the weights")),
            Tensor("parts", "partial", "partial", "output", 1, self.visible_groups, D, note=note),
            Tensor("m", "m", "m", "workspace", 1, 1, 1),
            Tensor("l", "l", "l", "workspace", 1, 1, 1),
        )

    def groups(self) -> tuple[Group, ...]:
        return (
            Group((("Q", "K", "V", "O"),), "global", parts.global_title(self.s)),
            Group((("SP",),)),
            Group((("q", "s"), ("parts",)), "shared", tr("shared memory of the block"), aligned=True),
            Group((("m", "l"),), "registers", tr("registers"), aligned=True),
        )

    # -- notes on cells ----------------------------------------------------------------------------
    def annotations(self) -> tuple[Annotation, ...]:
        i, j = (index.ravel() for index in np.mgrid[: self.rows, : self.keys])
        templates = (
            tr("The score of query {0} and key {1}, later their weight, is in shared memory while block {0} runs."),
            tr("Key {1} is after query {0}. Its score is never computed."),
        )
        hidden = ((j > i) & bool(self.s.causal)).astype(int)
        return (Annotation("SP", Captions(templates, hidden, np.stack([i, j], axis=1))),)
