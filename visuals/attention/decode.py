"""Decoding as a scene: the keys of one sequence are cut into parts. A block computes the softmax of its part alone, as m, l
and o of each row. A second kernel merges the parts of a row. The first parts are followed; one head of keys is shown.
"""

# ruff: noqa: E741  # O and l are the names of the papers
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from kernels.attention import variants
from kernels.attention.shape import AttentionShape
from kernels.attention.variants_cpu import divided
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from visuals.attention import parts
from visuals.attention.parts import grid
from visuals.scene.parts import Group, Number, Source, Tensor
from visuals.scene.recorder import Recorder, matrix
from visuals.scene.requests import LANES, WORD
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

RUNG = "attention/flash-decode"
LOG2E = np.float32(1.44269504)
MAX_ROWS, MAX_KEYS, MAX_FOLLOWED, MAX_PARTS, MAX_COLS, FIRST_COLS = 2, 16, 4, 8, 8, 4
SPLIT, MERGE = "attention/32_decode_parts.cu", "attention/33_decode_merge.cu"
M_, L_, O_ = "[m](workspace)", "[l](workspace)", "[o](workspace)"
ORDER_NOTE = mark(
    "The picture shows the blocks of the first parts one after the other. On a GPU all blocks of the first kernel run at once, and the "
    "second kernel begins when all have ended."
)
SPLIT_STEPS = MappingProxyType({
    "q": ("unpack(q[row][n]", mark("The block of part {0} owns keys {1}–{2}. Rows of {Q} that use these keys: {3}. The block loads them and multiplies them by "
          "the factor {4}, so that weights are powers of 2.")),
    "scores": ("s[row] += q[row]", mark("The block loads rows {0}–{1} of {K} once, for all rows of {Q}. The score of row 0 and key {2} is {3}, scaled to an exponent of 2.")),
    "cap": ("s = cap * LOG2E", mark("The cap c limits each score: it becomes c · tanh(score / c). The factor contains the division by c. The score of row 0 and key {0} is now {1}.")),
    "hide": ("s = -INFINITE", mark("The mask is applied, and keys that a row does not see get the score −∞. Hidden pairs of this part: {0}.")),
    "bias": ("else s = masked(s", mark("The bias of the mask is added to each score. Keys that a row does not see get −∞. The score of row 0 and key {0} is now {1}.")),
    "max": ("m = fmaxf(m, s)", mark("A warp takes a row and finds its largest score in this part. For row 0, {m} = {0}. No other part is needed.")),
    "weights": ("l += p", mark("Each score is replaced by the weight 2^(score − {m}). Their sum in row 0 is {l} = {0}. Both numbers are stored for part {1}.")),
    "values": ("part_o[(place", mark("The block loads rows {0}–{1} of {V} and adds them with the weights. The sum {o} of part {2} is not yet divided by {l}. Its column 0 in row 0 is {3}.")),
    "other-parts": ("part_o[(place", mark("The other {0} blocks do the same with their parts. The rows see {1} of {2} keys. Each of these keys is now read once.")),
})  # fmt: skip
MERGE_STEPS = MappingProxyType({
    "largest": ("m = fmaxf(m, part_m", mark("A block of the second kernel merges a row. The largest {m} of the {0} parts of row 0 is {1}.")),
    "rescale": ("rescale = exp2_(", mark("Each part gets the factor 2^({m} of the part − largest {m}). For part {0} of row 0 it is 2^({1} − {2}) = {3}.")),
    "sums": ("l += rescale", mark("The sums {l} of the parts are added with these factors. For row 0 this gives l = {0}, as if one block had read all keys.")),
    "result": ("rounded(l", mark("The sums {o} are added with the same factors and divided by l: {O}[0, 0] = {0} / {1} = {2}.")),
    "end": ("rounded(l", mark("Every row is merged in this way. Rows: {0}. The parts take {1} numbers in memory, {K} and {V} take {2}.")),
})  # fmt: skip


def decode_scene(s: AttentionShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of attention/flash-decode. inputs: Q [rows, d], K and V [M, d], float32, of the heads that share the
    keys of head 0, and the mask [N, M] if there is one."""
    decode = Decode(s, tiles, inputs)
    decode.run()
    r = decode.r
    prefix = tr("one head of keys: ") if s.B * s.groups > 1 else ""
    return Scene(
        key=parts.scene_key(s, rung, tiles),
        title=tr(find(rung).title),
        tensors=decode.tensors(),
        groups=decode.groups(),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("part by part"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        readings=r.readings(prefix),
        captions=r.captions(),
        source=decode.source(0),
        next_sources=(decode.source(1),),
        finite=False,  # hidden scores are -inf
    )


@dataclass(frozen=True)
class Softmax:
    """The result of one part for all rows, float32: scores as the products, with cap and bias, and with hidden ones; m, l
    [rows], p [rows, keys], o [rows, d]."""

    keys: range
    products: np.ndarray
    capped: np.ndarray
    scores: np.ndarray
    m: np.ndarray
    p: np.ndarray
    l: np.ndarray
    o: np.ndarray


class Decode:
    """The steps of the blocks of the first parts, and of the merge."""

    def __init__(self, s: AttentionShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]):
        self.s, self.tiles, self.inputs = s, tiles, inputs
        self.rows, self.part = variants.decode_rows(s), tiles["PART"]
        self.parts, self.first = variants.parts(s, tiles), s.begin_key(0)
        self.shown_rows = min(variants.block_rows(s, tiles), MAX_ROWS)
        self.cols = s.d if s.d <= MAX_COLS else FIRST_COLS
        self.width = min(self.part, MAX_KEYS)  # keys of a part that are shown
        self.followed = min(self.parts, MAX_FOLLOWED) if self.part <= MAX_KEYS else 1
        self.shown_parts = min(self.parts, MAX_PARTS)
        self.shown_keys = min(self.followed * self.width, s.keys - self.first)
        self.cap, self.factor = np.float32(s.softcap), np.float32(s.factor)
        self.factor = self.factor / self.cap if s.softcap else self.factor * LOG2E
        names = {"m": M_, "l": L_, "o": O_}
        texts = {kind: text for kind, (_, text) in (SPLIT_STEPS | MERGE_STEPS).items()}
        self.r = Recorder(parts.fill_templates(texts, dict.fromkeys(texts, 0), names))
        self.results = [self.softmax(n) for n in range(self.parts)]

    # -- arithmetic -----------------------------------------------------------------------------------
    def softmax(self, n: int) -> Softmax:
        """Returns part n as its block computes it."""
        s, first = self.s, self.first + n * self.part
        keys = range(first, min(first + self.part, s.keys))
        products = (self.factor * self.inputs["Q"]) @ self.inputs["K"][keys.start : keys.stop].T
        capped = self.cap * LOG2E * np.tanh(products) if s.softcap else products
        query = np.arange(self.rows) % s.N
        if s.mask == "bias":
            capped = capped + LOG2E * self.inputs["mask"][query][:, keys.start : keys.stop]
        scores = np.where(self.hidden(keys), -np.inf, capped).astype(np.float32)
        m = scores.max(axis=1)
        p = np.exp2(scores - np.where(np.isfinite(m), m, 0)[:, None])
        o = p @ self.inputs["V"][keys.start : keys.stop]
        return Softmax(keys, products, capped, scores, m, p, p.sum(axis=1, dtype=np.float32), o)

    def hidden(self, keys: range) -> np.ndarray:
        """Returns bool [rows, keys]: True if a row does not see a key."""
        s, queries = self.s, np.arange(self.rows) % self.s.N
        begin, end = (np.array([edge(int(q)) for q in queries])[:, None] for edge in (s.begin_key, s.end_key))
        found = (np.asarray(keys) < begin) | (np.asarray(keys) >= end)
        return found | (self.inputs["mask"][queries][:, keys.start : keys.stop] == 0) if s.mask == "bool" else found

    # -- steps ----------------------------------------------------------------------------------------
    def run(self) -> None:
        for n in range(self.followed):
            self.one_part(n)
        self.other_parts()
        self.merge_from = self.r.steps
        self.merge()

    def one_part(self, n: int) -> None:
        r, x, C, D = self.r, self.results[n], self.width, self.cols
        keys, rows = x.keys, np.arange(self.shown_rows)
        seen = np.arange(min(len(keys), C))  # columns of the tile that are keys
        place = keys.start - self.first + seen  # rows of K and V as drawn
        tile = grid(rows, seen, C)
        j = int(x.p[0, : len(seen)].argmax())
        self.step("q", n, keys.start, keys.stop - 1, self.rows, self.factor, **self.moved("q", n))
        r.look("Q", grid(rows, range(D), D))
        r.look("K", grid(place, range(D), D))
        self.step("scores", keys.start, keys.stop - 1, keys.start + j, x.products[0, j], **self.moved("scores", n))
        r.look("Q", grid(rows, range(D), D))
        r.look("K", grid(place, range(D), D))
        r.put("p", x.products[: len(rows), : len(seen)], tile)
        self.change_scores(x, tile, len(seen), j)
        self.step("max", x.m[0], **self.moved("max", n))
        r.look("p", tile)
        r.put("part_m", x.m[rows], grid(rows, [n], self.shown_parts))
        self.step("weights", x.l[0], n, **self.moved("weights", n))
        r.look("part_m", grid(rows, [n], self.shown_parts))
        r.put("p", x.p[: len(rows), : len(seen)], tile)
        r.put("part_l", x.l[rows], grid(rows, [n], self.shown_parts))
        self.step("values", keys.start, keys.stop - 1, n, x.o[0, 0], **self.moved("values", n))
        r.look("p", tile)
        r.look("V", grid(place, range(D), D))
        r.put("part_o", x.o[: len(rows), :D], self.sum_cells(n))

    def step(self, kind: str, *args: Number, **moved: int) -> None:
        self.r.step(kind, *args, **moved)

    def change_scores(self, x: Softmax, tile: np.ndarray, seen: int, j: int) -> None:
        """Records what happens to the scores before the maximum is sought."""
        s, r, rows = self.s, self.r, self.shown_rows
        if s.softcap:
            without_bias = self.cap * LOG2E * np.tanh(x.products)
            self.step("cap", x.keys.start + j, without_bias[0, j])
            r.put("p", without_bias[:rows, :seen], tile)
        hidden = int((~np.isfinite(x.scores)).sum())
        if s.mask == "bias":
            self.step("bias", x.keys.start + j, x.scores[0, j])
        elif hidden or s.mask == "bool":
            self.step("hide", hidden)
        else:
            return
        r.put("p", x.scores[:rows, :seen], tile)

    def sum_cells(self, n: int) -> np.ndarray:
        """Returns the cells of part n in part_o, whose planes are the rows."""
        plane = self.shown_parts * self.cols
        return np.arange(self.shown_rows)[:, None] * plane + n * self.cols + np.arange(self.cols)

    def other_parts(self) -> None:
        others = range(self.followed, self.parts)
        blocks = self.parts * self.row_blocks * self.s.B * self.s.groups - self.followed
        if not blocks:
            return
        moved = [self.moved(kind, n) for n in others for kind in ("q", "scores", "max", "weights", "values")]
        total = {name: sum(m.get(name, 0) for m in moved) for name in ("read", "written", "shared")}
        self.step("other-parts", blocks, self.s.seen_keys, self.s.keys, **total)
        rows = np.arange(self.shown_rows)
        for n in range(self.followed, self.shown_parts):
            x = self.results[n]
            self.r.put("part_m", x.m[rows], grid(rows, [n], self.shown_parts))
            self.r.put("part_l", x.l[rows], grid(rows, [n], self.shown_parts))
            self.r.put("part_o", x.o[: len(rows), : self.cols], self.sum_cells(n))

    def merge(self) -> None:
        s, r, rows, D = self.s, self.r, np.arange(self.shown_rows), self.cols
        m, l, o = (np.stack([getattr(x, name) for x in self.results], axis=1) for name in "mlo")
        top = m.max(axis=1)
        rescale = np.exp2(m - np.where(np.isfinite(top), top, 0)[:, None])
        total, weighted = (rescale * l).sum(axis=1), (rescale[..., None] * o).sum(axis=1)
        O = divided(weighted, total[:, None])
        shown = np.arange(self.shown_rows * self.shown_parts)
        n = int(rescale[0, : self.shown_parts].argmin())
        each = WORD * self.parts * s.d * self.rows  # each thread of a column reads a number of each part
        self.step("largest", self.parts, top[0], read=each)
        r.look("part_m", shown)
        r.put("m", top[rows])
        self.step("rescale", n, m[0, n], top[0], rescale[0, n], read=each)
        r.look("part_m", shown)
        r.look("m", rows)
        r.put("factor", rescale[rows][:, : self.shown_parts])
        self.step("sums", total[0], read=each)
        r.look("part_l", shown)
        r.look("factor", shown)
        r.put("l", total[rows])
        word = ELEMENT_BYTES[s.dtype]
        self.step("result", weighted[0, 0], total[0], O[0, 0], read=each, written=word * self.rows * s.d)
        r.look("factor", shown)
        r.look("part_o", np.arange(self.shown_rows * self.shown_parts * D))
        r.look("l", rows)
        r.put("O", O[rows][:, :D])
        numbers = s.heads * s.N * self.parts
        cache = 2 * s.B * s.groups * s.seen_keys * s.d
        self.step("end", s.heads * s.N, numbers * (s.d + 2), cache)

    # -- bytes ----------------------------------------------------------------------------------------
    @property
    def row_blocks(self) -> int:
        return -(-self.rows // variants.block_rows(self.s, self.tiles))

    def moved(self, kind: str, n: int) -> dict[str, int]:
        """Returns the bytes that the threads of all blocks of part n request: read, written and shared."""
        s, word, keys = self.s, ELEMENT_BYTES[self.s.dtype], len(self.results[n].keys)
        DP, threads = variants.decode_padded(s), self.tiles["THREADS"]
        padded = self.row_blocks * variants.block_rows(s, self.tiles)  # rows with those that do not exist
        across, tile, row_sums = DP * word // 16, WORD * padded * self.part, WORD * threads // LANES
        masked = 0
        if s.mask != "none":  # an element for each pair that causal and window leave visible
            x = self.results[n].keys
            ends = [(s.begin_key(q), s.end_key(q)) for q in (np.arange(self.rows) % s.N).tolist()]
            masked = s.mask_bytes * sum(max(0, min(end, x.stop) - max(begin, x.start)) for begin, end in ends)
        return {
            "q": {"read": word * self.rows * s.d * (threads // variants.LANES)},
            "scores": {"read": word * keys * s.d * self.row_blocks, "shared": tile},
            "max": {"read": masked, "written": WORD * self.rows, "shared": 2 * WORD * self.rows * self.part},
            "weights": {"written": WORD * self.rows, "shared": 2 * WORD * self.rows * self.part},
            "values": {
                "read": word * keys * s.d * self.row_blocks,
                "written": WORD * self.rows * s.d,
                "shared": across * tile + row_sums * (padded * DP + self.rows * s.d),
            },
        }[kind]

    # -- the picture ----------------------------------------------------------------------------------
    def source(self, kernel: int) -> Source:
        r, split = self.r, len(SPLIT_STEPS)
        launch = find(RUNG).build(self.s, self.tiles).launch(kernel)
        kinds = np.array(r.kinds)
        if kernel == 0:
            marks = [line for line, _ in SPLIT_STEPS.values()]
            return source_of(SPLIT, marks, kinds[: self.merge_from], detail=resources(launch))
        marks = [line for line, _ in MERGE_STEPS.values()]
        kinds = kinds[self.merge_from :] - split
        return source_of(MERGE, marks, kinds, detail=resources(launch), since=self.merge_from)

    def tensors(self) -> tuple[Tensor, ...]:
        s, R, D, C, P = self.s, self.shown_rows, self.cols, self.shown_keys, self.shown_parts
        queries, keys = (self.rows, s.d), (s.keys, s.d)
        shown = self.inputs
        first = self.first

        def of_parts(name: str, symbol: str, planes: int, rows: int, cols: int, note: str) -> Tensor:
            plane = tr("row") if planes > 1 else ""
            return Tensor(name, symbol, name, "workspace", planes, rows, cols, note=note, plane_name=plane)

        rows_note = "" if self.rows == R else tr("rows 0–{last} of {all}", last=R - 1, all=self.rows)
        parts_note = "" if self.parts == P else tr("parts 0–{last} of {all}", last=P - 1, all=self.parts)
        tile_note = "" if self.part == self.width else tr("{shown} of {all} keys", shown=self.width, all=self.part)
        return (
            matrix("Q", "input", (R, D), (0, 0), queries, shown["Q"][:R, :D]),
            matrix("K", "filter", (C, D), (first, 0), keys, shown["K"][first : first + C, :D]),
            matrix("V", "filter", (C, D), (first, 0), keys, shown["V"][first : first + C, :D]),
            matrix("O", "output", (R, D), (0, 0), queries),
            of_parts("part_m", "m", 1, R, P, parts_note),
            of_parts("part_l", "l", 1, R, P, ""),
            of_parts("part_o", "o", R, P, D, rows_note),
            Tensor("p", "p", "tile_p", "workspace", 1, R, self.width, note=tile_note),
            Tensor("m", "m", "m", "workspace", 1, R, 1),
            Tensor("factor", "rescale", "rescale", "workspace", 1, R, P),
            Tensor("l", "l", "l", "workspace", 1, R, 1),
        )

    def groups(self) -> tuple[Group, ...]:
        title = tr("global memory")
        if self.s.B * self.s.groups > 1:
            title = tr("global memory, one of {n} heads of keys", n=self.s.B * self.s.groups)
        return (
            Group((("Q", "K", "V", "O"),), "global", title),
            Group((("p",),), "shared", tr("shared memory of the block of a part")),
            Group((("part_m", "part_l"),), "workspace", tr("workspace: a column for each part"), aligned=True),
            Group((("part_o",),), "workspace", tr("workspace: a row for each part")),
            Group(
                (("m", "factor", "l"),), "registers", tr("registers of the merge, a row for each query"), aligned=True
            ),
        )
