"""The URL of the lesson on threads and memory, its scenes, and the shapes that its Run measures.

The lesson has five topics, each with its own parameters. ?topic= selects one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels import records
from kernels.i18n import cached, mark
from kernels.jobs.job import Request
from kernels.ladders import LADDERS
from kernels.memory import ladder as memory_ladder
from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape, MemoryShape, StrideShape
from kernels.model.row import Row
from kernels.model.rung import Ladder
from pages.parts.address import Choice, Fields, Number, Values, choice_notes
from visuals.memory import count_tables
from visuals.memory.scene import BLOCK, memory_scene
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

TOPICS = {
    "threads": "add",
    "divergence": "branch",
    "coalescing": "stride",
    "banks": "banks",
    "layout": "layout",
}  # and their ladders
TOPIC_FIELDS = {
    "threads": {
        "mapping": Choice("vector", ("vector", "matrix", "matrix-transposed"), mark("threads"), 230),
        "M": Number(12, 1, 32, width=62),
        "N": Number(20, 1, 64, width=62),
        "BLOCK": Choice(64, (64, 128, 256), width=122),
        "TILE": Choice(16, (8, 16, 32), width=108),
    },
    "divergence": {
        "branches": Choice("lanes", ("lanes", "warps"), mark("branches by"), 150),
        "rounds": Number(2, 1, 3, width=110),
    },
    "coalescing": {"stride": Number(2, 1, 32, width=110)},
    "banks": {"stride": Number(4, 1, 32, width=110), "row": Choice(32, (32, 33), mark("words per row"), 170)},
    "layout": {
        "n": Number(2, 1, 4, label="N", width=56),
        "c": Number(3, 1, 8, label="C", width=56),
        "h": Number(2, 1, 4, label="H", width=56),
        "w": Number(4, 1, 4, label="W", width=58),
        "along": Choice("w", ("w", "c"), mark("threads along"), 150),
    },
}
# What Run measures: large enough to leave the caches, and on a GPU the shapes of the recordings.
SIZES = {
    "cuda": {
        "add": AddShape(4096, 4096),
        "branch": BranchShape(1 << 22, 256),
        "stride": 1 << 23,
        "layout": LayoutShape(32, 64, 56, 56),
    },
    "cpu": {
        "add": AddShape(2048, 2048),
        "branch": BranchShape(1 << 20, 256),
        "stride": 1 << 20,
        "layout": LayoutShape(32, 64, 56, 56),
    },
}


def topic(params: Mapping[str, str]) -> str:
    name = params.get("topic")
    return name if name in TOPICS else next(iter(TOPICS))


def topic_notes(params: Mapping[str, str]) -> list[str]:
    """Returns what is wrong with the topic in the URL."""
    return choice_notes("topic", params.get("topic"), tuple(TOPICS))


def fields(topic: str) -> Fields:
    return Fields(f"threads {topic}", TOPIC_FIELDS[topic])


Items = tuple[tuple[str, Any], ...]  # of the values: they have a hash


def ladder(topic: str) -> Ladder:
    return LADDERS[TOPICS[topic]]


def rung(topic: str, values: Values) -> str:
    """Returns the name of the rung on the stage."""
    if topic == "threads":
        return f"add/{values['mapping']}"
    if topic == "divergence":
        return f"branch/{values['branches']}"
    if topic == "coalescing":
        return "stride/copy"
    if topic == "banks":
        return "banks/padded" if values["row"] == 33 else "banks/plain"
    return f"layout/along-{values['along']}"


def shape(topic: str, values: Values) -> MemoryShape:
    """Returns the shape on the stage: one warp if the topic is the accesses of one warp."""
    if topic == "threads":
        return AddShape(values["M"], values["N"])
    if topic == "divergence":
        return BranchShape(64, values["rounds"])
    if topic == "coalescing":
        return StrideShape(32, values["stride"])
    if topic == "banks":
        return BanksShape(32, values["stride"])
    return LayoutShape(*(values[name] for name in "nchw"))


def tiles(topic: str, values: Values) -> dict[str, int]:
    """Returns the ladder's tile sizes that the page sets."""
    return {name: values[name] for name in ("BLOCK", "TILE")} if topic == "threads" else {}


def scene(topic: str, values: Values) -> Scene:
    return _scene(topic, tuple(values.items()))


@cached(MAX_CACHED_SCENES)
def _scene(topic: str, items: Items) -> Scene:
    values = dict(items)
    stage_rung = ladder(topic).rung(rung(topic, values))
    sizes = {name: size for name, size in (BLOCK | tiles(topic, values)).items() if name in stage_rung.tiles}
    return memory_scene(stage_rung.name, shape(topic, values), sizes)


def counted(topic: str, values: Values) -> count_tables.CountTable:
    return _counted(topic, tuple(values.items()))


@cached(MAX_CACHED_SCENES)
def _counted(topic: str, items: Items) -> count_tables.CountTable:
    values = dict(items)
    if topic == "divergence":
        return count_tables.branches(values["rounds"])
    if topic == "coalescing":
        return count_tables.strides(values["stride"])
    if topic == "banks":
        return count_tables.banks(values["stride"])
    return count_tables.mappings(TOPICS[topic], shape(topic, values), tiles(topic, values))


# -- what Run measures -----------------------------------------------------------------------------
def measured_shapes(topic: str, engine: str, stride: int = 1) -> Sequence[MemoryShape]:
    """Returns the shapes to measure, in order; none if the engine has none: a processor has no banks.

    The stage's `stride` is included."""
    size = SIZES[engine]
    if topic == "coalescing":
        return [StrideShape(size["stride"], s) for s in sorted({*memory_ladder.STRIDES, stride})]
    if topic == "banks":
        strides = sorted({*memory_ladder.BANK_STRIDES, stride})
        return [BanksShape(1 << 18, s, 64) for s in strides] if engine == "cuda" else []
    if topic == "divergence" and engine == "cpu":  # a processor has no warps
        return []
    return [size[TOPICS[topic]]]


def requests(topic: str, engine: str, stride: int = 1) -> list[Request]:
    rungs = tuple(r.name for r in ladder(topic).rungs if engine in r.engines)
    return [Request(rungs, s, None, engine, {}, "cold", 1.0) for s in measured_shapes(topic, engine, stride)]


def recorded(topic: str) -> list[Row]:
    """Returns the rows recorded at the shapes of a GPU's run, in the order of shapes and rungs."""
    found = [
        records.recorded(r.name, s, r.default_tiles)
        for s in measured_shapes(topic, "cuda")
        for r in ladder(topic).rungs
    ]
    return [row for row in found if row]
