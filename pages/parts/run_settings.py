"""What a press on Run would run, what it ran, and which rows the cards tell of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import streamlit as st

from kernels import engines, records
from kernels.jobs.job import Request
from kernels.model.rung import Ladder, Rung
from kernels.records import availability
from kernels.records.nearest import Near


@dataclass(frozen=True)
class Asked:
    """What a press on Run would run: every rung of the ladder that can, on seeded random inputs (as the
    recordings were made: pictures hold many zeros, and zeros can run faster)."""

    ladder: Ladder
    shape: Any
    engine: str
    timing: str
    tiles: tuple[tuple[str, int], ...]
    of: str = ""  # the rung whose tile sizes these are, the others at their usual ones; "": every rung's that has them

    def tiles_of(self, rung: Rung) -> dict[str, int]:
        if self.of and rung.name != self.of:
            return rung.default_tiles
        return {name: value for name, value in self.tiles if name in rung.tiles}

    def able(self) -> list[Rung]:
        """Returns the rungs that no rule keeps from this shape."""
        return self._able

    @cached_property
    def _able(self) -> list[Rung]:
        return [
            r
            for r in self.ladder.rungs
            if self.engine in r.engines and availability.runs(r, self.shape, self.tiles_of(r))
        ]

    def refusals(self) -> dict[str, str]:
        """Returns why this machine cannot run a rung, by rung name, for those of `able` that it cannot."""
        return self._refusals

    @cached_property
    def _refusals(self) -> dict[str, str]:
        found = {}
        for rung in self.able():
            tiles = rung.default_tiles | self.tiles_of(rung)
            if why := engines.refusal(self.engine, rung, self.shape, tiles):
                found[rung.name] = why
        return found

    def runs(self) -> list[Rung]:
        """Returns those of `able` that a press on Run runs."""
        return [rung for rung in self.able() if rung.name not in self.refusals()]

    def tiles_for(self, rungs: Sequence[Rung]) -> dict[str, Any]:
        """The tile sizes as kernels.runner.compare takes them for these rungs."""
        if self.of:
            return {r.name: self.tiles_of(r) for r in rungs if r.name == self.of}
        return {name: value for name, value in self.tiles if any(name in r.tiles for r in rungs)}

    def request(self) -> Request:
        runs = self.runs()
        tiles = self.tiles_for(runs)
        return Request(tuple(r.name for r in runs), self.shape, None, self.engine, tiles, self.timing)

    def recorded(self) -> dict[str, dict]:
        """Recorded rows by rung name, at exactly this shape, tiles and timing."""
        return self._recorded

    @cached_property
    def _recorded(self) -> dict[str, dict]:  # every card asks for them
        found = {
            r.name: records.recorded(r.name, self.shape, self.tiles_of(r), self.timing)
            for r in self.ladder.rungs
        }
        return {name: row for name, row in found.items() if row}

    def near(self) -> dict[str, Near]:
        """By rung name, for rungs without such a row: the recording nearest to what is asked, all at one shape, that of the
        most, so that they can be compared with each other. They are of other settings: never drawn as if of these."""
        exact = self.recorded()
        found = {
            r.name: records.nearest(r.name, self.shape, self.tiles_of(r), self.timing)
            for r in self.able()
            if r.name not in exact
        }
        at = {name: tuple(near.row["shape"].items()) for name, near in found.items() if near}
        most = Counter(at.values()).most_common(1)
        return {name: found[name] for name, shape in at.items() if shape == most[0][0]}

    def __str__(self) -> str:
        return f"{self.shape}, {', '.join(f'{name} {value}' for name, value in self.tiles)}, {self.timing}, {self.engine}"


@dataclass(frozen=True)
class Ran:
    """A finished comparison: what was asked for then, a row for each rung by name, when it was answered, and why a
    rung has no row, by its name: its library does not support the shape, or the memory does not suffice."""

    asked: Asked
    rows: Mapping[str, dict]
    at: float  # seconds since the epoch; before one's own press where somebody had asked the same
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def ago(self) -> str:
        minutes = int((time.time() - self.at) / 60)
        return f", {minutes} min ago" if minutes else ""


@dataclass(frozen=True)
class Shown:
    """The rows a card tells of, their kind, and whether the controls have moved away from them."""

    rows: Mapping[str, dict]
    kind: str
    stale: bool


def shown(asked: Asked) -> Shown:
    """What the cards tell of: the run of just these settings, else their recording, else a stale run."""
    ran, recorded = st.session_state.get("ran"), asked.recorded()
    if ran and (ran.asked == asked or not recorded):
        return Shown(ran.rows, "measured", ran.asked != asked)
    return Shown(recorded, "recorded", False)


def bars(asked: Asked, rows: Mapping[str, dict]) -> list[tuple[str, dict]]:
    """(title, row) of each rung that has a row, in the order of the ladder."""
    return [(r.title_on(rows[r.name]["engine"]), rows[r.name]) for r in asked.ladder.rungs if r.name in rows]
