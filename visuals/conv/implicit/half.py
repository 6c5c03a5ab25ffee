"""Figures of the FP16 convolution with the channels last, beside cuDNN's. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernels import records
from kernels.conv.half.presets import SWEPT
from kernels.i18n import tr
from kernels.ladders import LADDERS
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest
from visuals import units
from visuals.charts.ladder_notes import Row, title
from visuals.charts.sweeps import tiles_text

LADDER = LADDERS["conv-fp16"]


@dataclass(frozen=True)
class Layer:
    """A layer, the fastest recording of our kernels at any tile sizes, and that of cuDNN."""

    preset: Preset
    ours: Row
    library: Row

    @property
    def share(self) -> float:
        """Our speed relative to cuDNN's."""
        return self.library["median_ms"] / self.ours["median_ms"]


@cached(8)
def layers() -> list[Layer]:
    """Returns the swept layers of which the GPU in use has cold recordings of our kernels and of cuDNN."""
    return list(_layers())


def _layers() -> Iterator[Layer]:
    rows = [row for row in records.recordings(LADDER.name) if row["mode"] == "cold"]
    for key in SWEPT:
        preset = LADDER.presets[key]
        here = [row for row in rows if LADDER.shape(**row["shape"]) == preset.shape]
        library, ours = (fastest(row for row in here if _is_library(row) == is_library) for is_library in (True, False))
        if ours and library:
            yield Layer(preset, ours, library)


def _is_library(row: Mapping) -> bool:
    return bool(LADDER.rung(row["rung"]).library)


def sentence(found: list[Layer]) -> str:
    """Returns the range of our speed relative to cuDNN's; "" without recordings."""
    if not found:
        return ""
    low, high = (units.ratio(limit(layer.share for layer in found)) for limit in (min, max))
    return tr(
        "In FP16 with the channels last, our fastest kernel is {low} to {high} times as fast as cuDNN’s fastest.",
        low=low,
        high=high,
    )


def lines(found: list[Layer]) -> tuple[list[str], list[list[str]]]:
    """Returns (head, rows) of a table: a layer a row."""
    head = [tr("layer"), tr("our fastest"), tr("tile sizes"), tr("time"), tr("cuDNN"), tr("times as fast")]
    return head, [
        [
            tr(layer.preset.label),
            title(layer.ours),
            tiles_text(layer.ours["tiles"]),
            units.time_(layer.ours["median_ms"]),
            units.time_(layer.library["median_ms"]),
            units.ratio(layer.share),
        ]
        for layer in found
    ]


def ideas() -> list[tuple[str, str]]:
    """Returns (title, idea) of each of our kernels, in the order of the ladder."""
    return [(tr(rung.title), tr(rung.idea)) for rung in LADDER.rungs if not rung.library]
