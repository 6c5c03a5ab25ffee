"""Softmax as a scene: one row through one kernel, pass by pass, m and l as numbers, the tree or the butterfly that makes
one value of all threads', infinities and NaN as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np

from kernels.ladders import find
from visuals.scene.parts import Captions, Group, Lanes, Read, Reading, Tensor, Told, Write
from visuals.scene.requests import LANES, mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of
from visuals.softmax.captions import MARKS, TEMPLATES
from visuals.softmax.plan import BITS, Step, ran, steps, threads_of

ORDER = "turn by turn"
ORDER_NOTE = (
    "A step is what the threads of the row do in one turn of a loop, one level of the tree or one exchange. On a GPU the "
    "warps of a block run in an order of the scheduler's choosing between two barriers, and other rows at the same time. "
    "m and l are computed as the kernel computes them, y is what it wrote when the emulator ran it."
)
MOST_COLUMNS = 1024  # of a row on the stage
MOST_TOLD = 32  # threads whose cells tell what they are made of
# Every tensor but x, and its role.
ROLES = {
    "values": "input", "m": "filter", "l": "workspace", "partial_m": "filter", "partial_l": "workspace", "warp_m": "filter",
    "warp_l": "workspace", "y": "output",
}  # fmt: skip


def shown(N: int) -> int:
    """How many columns of a row are on the stage."""
    return min(N, MOST_COLUMNS)


def softmax_scene(rung: str, tiles: Mapping[str, int], row: np.ndarray, of: str = "") -> Scene:
    """The scene of a rung of ours at a row, float32 [n], any values, NaN and infinities among them. `of` says which row
    it is, and of what it is a part. RuleError where the rung cannot run the row."""
    x = np.ascontiguousarray(row, np.float32)
    done = ran(rung, tuple(tiles.items()), x.tobytes())
    told = steps(rung, tiles, x, done.output)
    threads = threads_of(rung, tiles)
    tensors = _tensors(rung, tiles, x, told, of)
    sizes = ",".join(f"{name}={value}" for name, value in tiles.items())
    return Scene(
        key=f"{rung} {sizes} {_digest(x)} {of}",
        title=find(rung).title,
        tensors=tuple(tensors.values()),
        groups=_groups(tensors, threads),
        steps=len(told),
        step_name="step",
        order_name=ORDER,
        order_note=ORDER_NOTE,
        writes=tuple(_writes(told)),
        reads=tuple(_reads(told)),
        captions=_captions(told),
        readings=_readings(rung, told, x.size),
        told=tuple(_told(tensors, threads, told)),
        source=source_of(
            done.launch.source, tuple(MARKS[rung].values()), _lines(rung, told),
            notes=margin(done.counters, done.launch.source.rpartition("/")[2]), detail=resources(done.launch),
        ),
        lanes=_lanes(told),
        finite=False,
    )  # fmt: skip


def _digest(x: np.ndarray) -> str:
    """A name for a row: its length and a digest of its bits."""
    return f"{x.size}:{blake2b(x.tobytes(), digest_size=6).hexdigest()}"


# -- tensors ---------------------------------------------------------------------------------------------
def _tensors(
    rung: str, tiles: Mapping[str, int], x: np.ndarray, told: Sequence[Step], of: str
) -> dict[str, Tensor]:
    """x, and those that the steps write."""
    threads = threads_of(rung, tiles)
    last: dict[str, int] = {}
    for step in told:
        for name, (cells, _) in step.writes.items():
            last[name] = max(last.get(name, 0), int(cells.max()))
    found = {"x": Tensor("x", "x", "x", "input", 1, 1, x.size, x, note=of or f"{x.size} numbers")}
    for name in [n for n in ROLES if n in last]:
        cols = x.size if name == "y" else threads // LANES if name in ("warp_m", "warp_l") else threads
        rows = last[name] // cols + 1
        title, note = _words(rung, name, rows, tiles.get("PER", 0))
        symbol = "partial" if title.startswith("partial,") else name
        found[name] = Tensor(name, symbol, title, ROLES[name], 1, rows, cols, note=note)
    return found


def _words(rung: str, name: str, rows: int, per: int) -> tuple[str, str]:
    """(title, note) of a tensor with so many rows; `per` registers keep a thread's part of the row."""
    if name == "values":
        rest = f"; the other {per - rows} of {per} hold −∞" if rows < per else ""
        return "the row", f"a register a row{rest}"
    if name in ("m", "l"):
        title = {"m": "m, largest so far", "l": "l, sum so far"}[name]
        return title, "a column a lane; a row after each exchange" if rows > 1 else "a column a thread"
    if name in (
        "partial_m",
        "partial_l",
    ):  # in 03_online.cu they are two arrays, in the others one, used again
        title = name if rung == "softmax/online" else name.replace("_", ", of ")
        return title, "the same cells after each level"
    return {"y": ("y = softmax(x)", "")}.get(name, (name, "a float a warp"))


def _groups(tensors: Mapping[str, Tensor], threads: int) -> tuple[Group, ...]:
    def rows(*names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        there = (tuple(n for n in row if n in tensors) for row in names)
        return tuple(row for row in there if row)

    warp = "lanes 0 to 31 of the warp" if threads == LANES else f"the block's {threads:,} threads"
    deep = tensors["m" if "m" in tensors else "l"].rows > 1
    own = rows(("values",), ("m",), ("l",)) if deep else rows(("values",), ("m", "l"))
    wide = threads > 2 * LANES
    trees, warps = ("partial_m", "partial_l"), ("warp_m", "warp_l")
    shared = rows(trees[:1], trees[1:], warps) if wide else rows(trees, warps)
    groups = [
        Group((("x",), ("y",)), "global", "global memory"),
        Group(own, "registers", f"registers of {warp}"),
    ]
    return (*groups, *([Group(shared, "shared", "shared memory of the block")] if shared else []))


# -- steps -----------------------------------------------------------------------------------------------
def _writes(told: Sequence[Step]) -> list[Write]:
    """One Write a tensor."""
    writes: list[Write] = []
    for name in dict.fromkeys(n for step in told for n in step.writes):
        here = [(t, *step.writes[name]) for t, step in enumerate(told) if name in step.writes]
        when = np.concatenate([np.full(len(cells), t) for t, cells, _ in here])
        cells = np.concatenate([cells for _, cells, _ in here])
        writes.append(Write(name, when, np.concatenate([values for *_, values in here]), cells=cells))
    return writes


def _reads(told: Sequence[Step]) -> list[Read]:
    reads = []
    for name in dict.fromkeys(n for step in told for n in step.reads):
        cells = [step.reads.get(name, np.zeros(0, int)) for step in told]
        reads.append(Read(name, np.cumsum([0, *map(len, cells)]), np.concatenate(cells).astype(int)))
    return reads


def _captions(told: Sequence[Step]) -> Captions:
    kinds = list(dict.fromkeys(step.kind for step in told))
    args = np.zeros((len(told), max(len(step.args) for step in told)))
    for t, step in enumerate(told):
        args[t, : len(step.args)] = step.args
    return Captions(tuple(TEMPLATES[k] for k in kinds), np.array([kinds.index(s.kind) for s in told]), args)


def _lines(rung: str, told: Sequence[Step]) -> np.ndarray:
    at = {kind: n for n, kind in enumerate(MARKS[rung])}
    return np.array([at[step.kind] for step in told])


def _readings(rung: str, told: Sequence[Step], n: int) -> tuple[Reading, ...]:
    read, written = (
        np.cumsum([4 * len(of) for of in moved])
        for moved in (
            [s.reads.get("x", ()) for s in told],
            [s.writes["y"][0] if "y" in s.writes else () for s in told],
        )
    )
    values = (
        [] if rung.endswith("unsafe") else [Reading("m so far", np.array([s.m for s in told]), role="filter")]
    )
    return (
        *values,
        Reading("l so far", np.array([s.l for s in told]), role="workspace"),
        Reading("bytes of x read", read, "counted"),
        Reading("passes over x", read / (4 * n), "counted"),
        Reading("bytes of y written", written, "counted"),
    )  # fmt: skip


def _lanes(told: Sequence[Step]) -> Lanes:
    """The first warp that takes part, and its lanes."""
    warp = np.array([int(step.active[0]) // LANES for step in told])
    masks = [mask_of(s.active[s.active // LANES == w] % LANES) for s, w in zip(told, warp, strict=True)]
    return Lanes(warp, np.array(masks, np.uint32))


# -- what a cell is made of --------------------------------------------------------------------------------
_OF = {
    "m": "The larger of {0} and {1}.",
    "l": "The sum of {0} and {1}.",
    "both": "Of {0} and {1}, each rescaled to the larger of their m.",
}


def _told(tensors: Mapping[str, Tensor], threads: int, told: Sequence[Step]) -> list[Told]:
    """Of each cell of a tree or a butterfly the two it was made of."""
    if threads > MOST_TOLD:
        return []
    both = any(step.kind.endswith("_ml") for step in told)
    of_l = "both" if both else "l"
    made = {"partial_m": "m", "partial_l": of_l, "m": "m", "l": of_l}
    return [
        _made_of(tensors[name], name in ("partial_m", "partial_l"), words, told)
        for name, words in made.items()
        if name in tensors and tensors[name].rows > 1
    ]


def _made_of(t: Tensor, tree: bool, words: str, told: Sequence[Step]) -> Told:
    """Row by row: a tree halves what is left of it, a butterfly pairs lanes by a bit of their number."""
    values = np.full(t.size, np.nan)
    for step in told:
        if t.name in step.writes:
            cells, of = step.writes[t.name]
            values[cells] = of
    links, args = np.full((t.size, 2), -1), np.zeros((t.size, 2))
    made = np.zeros(t.size, bool)
    for level in range(1, min(t.rows, len(BITS) + 1) if not tree else t.rows):
        apart = (t.cols >> level) if tree else BITS[level - 1]
        own = np.arange(apart if tree else t.cols)
        cells = level * t.cols + own
        links[cells] = (level - 1) * t.cols + np.stack([own, own + apart if tree else own ^ apart], axis=1)
        args[cells], made[cells] = values[links[cells]], True
    kind = np.where(made, 0, 1)
    return Told(t.name, Captions((_OF[words], ""), kind, args), {t.name: links})
