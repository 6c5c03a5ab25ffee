"""What the address of the lesson on choosing means, and which rows its race is run with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any

import streamlit as st

from kernels import engines, records
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import CONV_SINCE, MODES, ConvShape
from kernels.ladders import LADDERS
from kernels.model.rung import Rung
from kernels.records import unsupported
from pages.conv import address as conv_address
from pages.parts.address import Choice, Fields, Number, Text, Values
from pages.parts.run_settings import Asked
from visuals.conv.choose import race as race_chart

LADDER = LADDERS["conv"]
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs}
OPEN = "show"  # the guess of who does not want to guess
DEFAULT = CONV_PRESETS["resnet50-res3-3x3-n32"].shape
MOST = conv_address.MOST | {"C": 2048, "K": 2048}
SMALL = {"N": 1, "C": 16, "K": 16, "H": 28, "W": 28}  # extents that a processor is through with soon


def _field(name: str, usual: int | str) -> Number | Choice | Text:
    if name == "mode":
        return Choice(usual, MODES)
    if name in ("bias", "relu"):
        return Choice(usual, (0, 1))
    return Number(usual, conv_address.LEAST.get(name, 1), MOST.get(name, MOST["C"]))


def _mend(values: Values) -> Iterator[tuple[str, Values]]:
    yield from conv_address.fits(values, asdict(DEFAULT))
    if gcd(values["C"], values["K"]) % values["groups"]:
        yield "C and K must be multiples of groups", {"groups": 1}


FIELDS = Fields(
    "choose",
    {name: _field(name, usual) for name, usual in asdict(DEFAULT).items()}
    | {"predict": Choice("", ("", OPEN, *RUNGS))},
    _mend,
)


def shape_of(values: Mapping[str, Any]) -> ConvShape:
    return ConvShape(**{name: value for name, value in values.items() if name != "predict"})


def at(shape: ConvShape, predict: str = "") -> dict[str, str]:
    """The parameters that set the page to a shape: a guess is asked anew, but of who wants none."""
    return FIELDS.write(CONV_SINCE | shape.params() | {"predict": predict if predict == OPEN else ""})


def guessed(shape: ConvShape, predict: str) -> dict[str, str]:
    """The parameters of a guess at this shape."""
    return FIELDS.write(CONV_SINCE | shape.params() | {"predict": predict})


def small(shape: ConvShape) -> ConvShape:
    """A shape's filter, stride and padding at extents that a processor is through with soon; of groups one."""
    cut = {name: min(getattr(shape, name), most) for name, most in SMALL.items()}
    least = shape.span_h, shape.span_w
    return shape.with_(**cut | {"H": max(cut["H"], least[0]), "W": max(cut["W"], least[1]), "groups": 1})


# -- who runs, and in which rows -----------------------------------------------------------------
@dataclass(frozen=True)
class Race:
    """Rows by rung name, at one shape and on one device. `words` where they are not of what is asked for."""

    rows: Mapping[str, dict]
    kind: str  # measured or recorded
    shape: ConvShape
    words: str = ""
    stale: bool = False

    def lanes(self) -> list[race_chart.Lane]:
        return race_chart.lanes(LADDER.rungs, self.shape, self.rows)


def races(asked: Asked) -> list[Race]:
    """What was run here, then what is recorded: at this shape; at the nearest where nothing else is of this one."""
    found = []
    if (ran := st.session_state.get("ran")) and ran.rows:
        stale = ran.asked != asked
        found.append(Race(ran.rows, "measured", ran.asked.shape, str(ran.asked) if stale else "", stale))
    if rows := asked.recorded():
        found.append(Race(rows, "recorded", asked.shape))
    elif all(race.stale for race in found) and (near := nearest(asked)):
        found.append(near)
    return found


def nearest(asked: Asked) -> Race | None:
    """The recorded shape nearest to the one asked for, with every rung that was recorded there."""
    for rung in LADDER.rungs:
        near = records.nearest(rung.name, asked.shape, rung.default_tiles, asked.timing)
        if near and near.row["tiles"] == rung.default_tiles:
            there = ConvShape(**near.row["shape"])
            rows = {
                r.name: row
                for r in LADDER.rungs
                if (row := records.recorded(r.name, there, r.default_tiles, asked.timing))
            }
            return Race(rows, "recorded", there, near.words)
    return None


def why_not(rung: Rung, shape: ConvShape) -> str:
    """What keeps a rung from a shape: its rule, or a library's words; "" where nothing does."""
    if rung.library == "cuDNN":
        told = unsupported.recorded(rung.name, shape)
        return f"{told['said']}, asked on an {told['device']}, {told['date']}" if told else ""
    return "; ".join(rung.rules(shape, rung.default_tiles))


def starters(shape: ConvShape) -> list[Rung]:
    """The rungs that nothing is known to keep from a shape: what a reader may bet on."""
    return [rung for rung in LADDER.rungs if not why_not(rung, shape)]


def out(race: Race) -> list[race_chart.Out]:
    """Who has no lane in a race, gathered by the reason."""
    by: dict[str, list[str]] = {}
    engine = next(iter(race.rows.values()))["engine"]
    for rung in LADDER.rungs:
        if rung.name not in race.rows:
            by.setdefault(reason(rung, race, engine), []).append(title(rung, engine))
    return [race_chart.Out(tuple(titles), why) for why, titles in by.items()]


def title(rung: Rung, engine: str) -> str:
    """As it is true on an engine; a rung that it does not run keeps its own."""
    return rung.title_on(engine) if engine in rung.engines else rung.title


def reason(rung: Rung, race: Race, engine: str) -> str:
    mode = next(iter(race.rows.values()))["mode"]
    if engine not in rung.engines:
        return f"runs on the {' or '.join(rung.engines)} engine only"
    return (
        why_not(rung, race.shape) or _refusal(rung, race, engine) or f"not {race.kind} {mode} at this shape"
    )


def _refusal(rung: Rung, race: Race, engine: str) -> str:
    """Returns why this machine could not measure a rung that no rule keeps from the shape; "" of a recording."""
    if race.kind != "measured" or any(rung.rules(race.shape, rung.default_tiles)):
        return ""
    return engines.refusal(engine, rung, race.shape, rung.default_tiles)
