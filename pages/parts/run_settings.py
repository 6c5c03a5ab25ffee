"""The settings of a run, its result, and the rows that the cards show."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic

import streamlit as st

from kernels import engines, records
from kernels.i18n import tr
from kernels.jobs.job import Request
from kernels.model.row import Json, Row
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import S
from kernels.records import availability
from kernels.records.nearest import Match


@dataclass(frozen=True)
class RunSettings(Generic[S]):
    """The settings of Run, which runs every supported rung of the ladder on seeded random inputs.

    The recordings used such inputs too. Pictures hold many zeros, and zeros can run faster.
    """

    ladder: Ladder
    shape: S
    engine: str
    timing: str
    tiles: tuple[tuple[str, int], ...]
    tiles_rung: str = (
        ""  # the rung that has these tile sizes, the others have those of the shape; "": every rung that has such sizes
    )
    machine: str = ""  # of a pool, by its device; "" for any

    def tiles_of(self, rung: Rung) -> dict[str, int]:
        if self.tiles_rung and rung.name != self.tiles_rung:
            return rung.tiles_at(self.shape)
        return {name: value for name, value in self.tiles if name in rung.tiles}

    def supported_rungs(self) -> list[Rung]:
        """Returns the rungs that no rule excludes at this shape.

        A rung whose idea a processor does not have is one of them: it is predicted, counted and recorded. `refusals` has
        the reason why Run leaves it out.
        """
        return self._supported_rungs

    @cached_property
    def _supported_rungs(self) -> list[Rung]:
        return [
            r
            for r in self.ladder.rungs
            if (self.engine in r.engines or r.not_on_cpu) and availability.runs(r, self.shape, self.tiles_of(r))
        ]

    def refusals(self) -> dict[str, str]:
        """Returns why this machine cannot run a rung, by rung name, for those of `supported_rungs` that it cannot."""
        return self._refusals

    @cached_property
    def _refusals(self) -> dict[str, str]:
        found = {}
        for rung in self.supported_rungs():
            tiles = rung.default_tiles | self.tiles_of(rung)
            if why := engines.refusal(self.engine, rung, self.shape, tiles):
                found[rung.name] = why
        return found

    def runs(self) -> list[Rung]:
        """Returns those of `supported_rungs` that a press on Run runs."""
        return [rung for rung in self.supported_rungs() if rung.name not in self.refusals()]

    def tiles_for(self, rungs: Sequence[Rung]) -> Json:
        """Returns the tile sizes of these rungs in the form that kernels.runner.compare expects."""
        if self.tiles_rung:
            tiles = {r.name: self.tiles_of(r) for r in rungs}
            return {
                r.name: tiles[r.name] for r in rungs if tiles[r.name] != r.default_tiles or r.name == self.tiles_rung
            }
        return {name: value for name, value in self.tiles if any(name in r.tiles for r in rungs)}

    def request(self) -> Request:
        runs = self.runs()
        tiles = self.tiles_for(runs)
        return Request(tuple(r.name for r in runs), self.shape, None, self.engine, tiles, self.timing)

    def recorded(self) -> dict[str, Row]:
        """Returns recorded rows by rung name, at exactly this shape, tiles and timing."""
        return self._recorded

    @cached_property
    def _recorded(self) -> dict[str, Row]:  # every card reads them
        found = {r.name: records.recorded(r.name, self.shape, self.tiles_of(r), self.timing) for r in self.ladder.rungs}
        return {name: row for name, row in found.items() if row}

    def nearest(self) -> dict[str, Match]:
        """Returns the nearest recording by rung name, for rungs without a recording at exactly these settings.

        All are at one shape, the one that most of these rungs have, so that they can be compared with each other. They
        have other settings, so they are never drawn as recordings of these.
        """
        exact = self.recorded()
        found = {
            r.name: records.nearest(r.name, self.shape, self.tiles_of(r), self.timing)
            for r in self.supported_rungs()
            if r.name not in exact
        }
        matches = {name: match for name, match in found.items() if match}
        shapes = {name: tuple(match.row["shape"].items()) for name, match in matches.items()}
        most_common = Counter(shapes.values()).most_common(1)
        return {name: matches[name] for name, shape in shapes.items() if shape == most_common[0][0]}

    def __str__(self) -> str:
        return f"{self.shape}, {', '.join(f'{name} {value}' for name, value in self.tiles)}, {self.timing}, {self.engine}{f', {self.machine}' if self.machine else ''}"


@dataclass(frozen=True)
class RunResult:
    """A finished run: its settings, rows by rung name, its time, and the reasons for missing rows by rung name.

    A row is missing if the rung's library does not support the shape or if there is not enough memory.
    """

    settings: RunSettings
    rows: Mapping[str, Row]
    finished_at: (
        float  # seconds since the epoch; before this reader's press if another reader requested the same earlier
    )
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def ago(self) -> str:
        minutes = int((time.time() - self.finished_at) / 60)
        return tr(", {n} min ago", n=minutes) if minutes else ""


@dataclass(frozen=True)
class CardRows:
    """The rows of a card, their kind, and whether the controls have other settings now."""

    rows: Mapping[str, Row]
    kind: str
    stale: bool


def card_rows(settings: RunSettings) -> CardRows:
    """Returns the rows for the cards: the run with exactly these settings, else their recording, else a stale run."""
    ran, recorded = st.session_state.get("ran"), settings.recorded()
    if ran and (ran.settings == settings or not recorded):
        return CardRows(ran.rows, "measured", stale=ran.settings != settings)
    return CardRows(recorded, "recorded", stale=False)


def bars(settings: RunSettings, rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    """Returns (title, row) of each rung that has a row, in the order of the ladder."""
    return [(r.title_on(rows[r.name]["engine"]), rows[r.name]) for r in settings.ladder.rungs if r.name in rows]
