"""Figures of the fused FP16 convolutions with the channels last, beside PyTorch's. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels import records
from kernels.fusion.half.presets import SWEPT
from kernels.i18n import tr
from kernels.ladders import LADDERS
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest
from visuals import units
from visuals.charts.ladder_notes import Row
from visuals.charts.sweeps import tiles_text

LADDER = LADDERS["fusion-fp16"]
EAGER, COMPILED = "fusion-fp16/torch", "fusion-fp16/torch-compile"


@dataclass(frozen=True)
class Chain:
    """A chain, the fastest recording of our kernel at any tile sizes, and those of PyTorch by rung."""

    preset: Preset
    ours: Row
    library: dict[str, Row]

    def speed(self, rung: str) -> float:
        """Our speed relative to a rung of PyTorch."""
        return self.library[rung]["median_ms"] / self.ours["median_ms"]


@cached(8)
def chains() -> list[Chain]:
    """Returns the swept chains of which the GPU in use has cold recordings of our kernel and of PyTorch's."""
    return list(_chains())


def _chains() -> Iterator[Chain]:
    rows = [row for row in records.recordings(LADDER.name) if row["mode"] == "cold"]
    for key in SWEPT:
        preset = LADDER.presets[key]
        here = [row for row in rows if LADDER.shape(**row["shape"]) == preset.shape]
        library: dict[str, Row] = {row["rung"]: row for row in here if LADDER.rung(row["rung"]).library}
        ours = fastest(row for row in here if row["rung"] not in library)
        if ours and library.keys() == {EAGER, COMPILED}:
            yield Chain(preset, ours, library)


def sentence(found: list[Chain]) -> str:
    """Returns the range of our speed relative to PyTorch's; "" without recordings."""
    if not found:
        return ""
    ranges = {
        f"{name}_{end}": units.ratio(limit(chain.speed(rung) for chain in found))
        for name, rung in (("eager", EAGER), ("compiled", COMPILED))
        for end, limit in (("low", min), ("high", max))
    }
    return tr(
        "In FP16, our kernel is {eager_low} to {eager_high} times as fast as PyTorch’s calls, and {compiled_low} to "
        "{compiled_high} times as fast as torch.compile.",
        **ranges,
    )


def lines(found: list[Chain]) -> tuple[list[str], list[list[str]]]:
    """Returns (head, rows) of a table: a chain a row."""
    head = [tr("chain"), tr("our kernel"), tr("tile sizes"), tr("PyTorch, eager"), tr("PyTorch, compiled")]
    return head, [
        [
            tr(chain.preset.label),
            units.time_(chain.ours["median_ms"]),
            tiles_text(chain.ours["tiles"]),
            *(units.time_(chain.library[rung]["median_ms"]) for rung in (EAGER, COMPILED)),
        ]
        for chain in found
    ]
