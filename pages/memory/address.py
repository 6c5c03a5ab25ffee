"""What the address of the lesson on threads and memory means, what it plays, and what its Run measures.

The lesson has four topics, each with its own parameters; ?topic= says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from kernels import records
from kernels.jobs.job import Request
from kernels.ladders import LADDERS
from kernels.memory import ladder as memory_ladder
from kernels.memory.shape import AddShape, BanksShape, LayoutShape, MemoryShape, StrideShape
from kernels.model.rung import Ladder
from kernels.model.shape import Bound
from pages.parts.address import Choice, Fields, Number
from visuals.memory import story
from visuals.memory.layout import layout_scene
from visuals.memory.sectors import banks_scene, stride_scene
from visuals.memory.threads import add_scene
from visuals.scene.scene import Scene

TOPICS = {"threads": "add", "coalescing": "stride", "banks": "banks", "layout": "layout"}  # and their ladders
OF = {
    "threads": {
        "mapping": Choice("vector", ("vector", "matrix", "matrix-transposed")),
        "M": Number(12, 1, 32), "N": Number(20, 1, 64),
        "BLOCK": Choice(64, (64, 128, 256)), "TILE": Choice(16, (8, 16, 32)),
    },
    "coalescing": {"stride": Number(2, 1, 32)},
    "banks": {"stride": Number(4, 1, 32), "row": Choice(32, (32, 33))},
    "layout": {
        "n": Number(2, 1, 4), "c": Number(3, 1, 8), "h": Number(2, 1, 4), "w": Number(4, 1, 4),
        "along": Choice("w", ("w", "c")),
    },
}  # fmt: skip
# What Run measures: large enough to leave the caches, and on a GPU the shapes of the recordings.
SIZES = {
    "cuda": {"add": AddShape(4096, 4096), "stride": 1 << 23, "layout": LayoutShape(32, 64, 56, 56)},
    "cpu": {"add": AddShape(2048, 2048), "stride": 1 << 20, "layout": LayoutShape(32, 64, 56, 56)},
}
Values = Mapping[str, Any]


def topic(params: Mapping[str, str]) -> str:
    told = params.get("topic")
    return told if told in TOPICS else next(iter(TOPICS))


def fields(of: str) -> Fields:
    return Fields(f"threads {of}", OF[of])


def bounds(of: str) -> dict[str, Bound]:
    return {name: Bound(f.least, f.most) for name, f in OF[of].items() if isinstance(f, Number)}


def ladder(of: str) -> Ladder:
    return LADDERS[TOPICS[of]]


def rung(of: str, values: Values) -> str:
    """The rung on the stage."""
    if of == "threads":
        return f"add/{values['mapping']}"
    if of == "coalescing":
        return "stride/copy"
    if of == "banks":
        return "banks/padded" if values["row"] == 33 else "banks/plain"
    return f"layout/along-{values['along']}"


def shape(of: str, values: Values) -> MemoryShape:
    """The shape on the stage: that of one warp where the topic is what one warp asks for."""
    if of == "threads":
        return AddShape(values["M"], values["N"])
    if of == "coalescing":
        return StrideShape(32, values["stride"])
    if of == "banks":
        return BanksShape(32, values["stride"])
    return LayoutShape(*(values[name] for name in "nchw"))


def tiles(of: str, values: Values) -> dict[str, int]:
    """Those that the page sets, of the ladder's."""
    return {name: values[name] for name in ("BLOCK", "TILE")} if of == "threads" else {}


def scene(of: str, values: Values) -> Scene:
    return _scene(of, tuple(values.items()))


@st.cache_resource(max_entries=64, show_spinner=False)
def _scene(of: str, items: tuple[tuple[str, Any], ...]) -> Scene:
    values = dict(items)
    name, what = rung(of, values), shape(of, values)
    if of == "threads":
        found = ladder(of).rung(name)
        return add_scene(name, what, {n: v for n, v in tiles(of, values).items() if n in found.tiles})
    if of == "coalescing":
        return stride_scene(values["stride"])
    return banks_scene(values["stride"], values["row"] - 32) if of == "banks" else layout_scene(name, what)


@st.cache_data(max_entries=64, show_spinner=False)
def counted(of: str, values: Values) -> story.Counted:
    if of == "coalescing":
        return story.strides(values["stride"])
    if of == "banks":
        return story.banks(values["stride"])
    return story.mappings(TOPICS[of], shape(of, values), tiles(of, values))


# -- what Run measures -----------------------------------------------------------------------------
def measured_shapes(of: str, engine: str, stride: int = 1) -> Sequence[MemoryShape]:
    """In order; none where the engine has nothing to show: a processor has no banks. `stride`, that on the
    stage, is measured too."""
    size = SIZES[engine]
    if of == "coalescing":
        return [StrideShape(size["stride"], s) for s in sorted({*memory_ladder.STRIDES, stride})]
    if of == "banks":
        all_ = sorted({*memory_ladder.BANK_STRIDES, stride})
        return [BanksShape(1 << 18, s, 64) for s in all_] if engine == "cuda" else []
    return [size[TOPICS[of]]]


def requests(of: str, engine: str, stride: int = 1) -> list[Request]:
    rungs = tuple(r.name for r in ladder(of).rungs)
    return [Request(rungs, s, None, engine, {}, "cold", 1.0) for s in measured_shapes(of, engine, stride)]


def recorded(of: str) -> list[dict]:
    """Rows recorded at the shapes of a GPU's run, in the order of shapes and rungs."""
    found = [
        records.recorded(r.name, s, r.default_tiles)
        for s in measured_shapes(of, "cuda")
        for r in ladder(of).rungs
    ]
    return [row for row in found if row]
