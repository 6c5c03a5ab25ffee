"""The URL of the lesson on choosing an algorithm, and the rows of its race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any

import streamlit as st

from kernels import engines, records
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import CONV_SINCE, MODES, ConvShape
from kernels.i18n import tr
from kernels.ladders import LADDERS
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.records import availability, unsupported
from pages.conv import address as conv_address
from pages.parts import rules
from pages.parts.address import Choice, Fields, Number, Text, Values
from pages.parts.run_settings import RunSettings
from visuals.conv.choose import race as race_chart

LADDER = LADDERS["conv"]
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs}
SHOW = "show"  # the value of `predict` for readers who do not want to guess
DEFAULT = CONV_PRESETS["resnet50-res3-3x3-n32"].shape
MAX = conv_address.MAX | {"C": 2048, "K": 2048}
SMALL = {"N": 1, "C": 16, "K": 16, "H": 28, "W": 28}  # extents that a processor computes quickly


def _field(name: str, default: Any) -> Number | Choice | Text:
    if name == "mode":
        return Choice(default, MODES)
    if name in ("bias", "relu"):
        return Choice(default, (0, 1))
    return Number(default, conv_address.MIN.get(name, 1), MAX.get(name, MAX["C"]))


def _groups(values: Values) -> str:
    return tr("C and K must be multiples of groups") if gcd(values["C"], values["K"]) % values["groups"] else ""


FIELDS = Fields(
    "choose",
    {name: _field(name, default) for name, default in asdict(DEFAULT).items()}
    | {"predict": Choice("", ("", SHOW, *RUNGS))},
    rules.fix(asdict(DEFAULT), *conv_address.RULES, rules.Rule(_groups, ("groups",))),
)


def shape_of(values: Values) -> ConvShape:
    return ConvShape(**{name: value for name, value in values.items() if name != "predict"})


def at_shape(shape: ConvShape, predict: str = "") -> dict[str, str]:
    """Returns the URL parameters of a shape. A guess is removed; the choice not to guess is kept."""
    return FIELDS.write(CONV_SINCE | shape.params() | {"predict": predict if predict == SHOW else ""})


def with_guess(shape: ConvShape, predict: str) -> dict[str, str]:
    """Returns the URL parameters of a guess at this shape."""
    return FIELDS.write(CONV_SINCE | shape.params() | {"predict": predict})


def small(shape: ConvShape) -> ConvShape:
    """Returns the shape with extents that a processor computes quickly and one group. Filter, stride, padding stay."""
    cut = {name: min(getattr(shape, name), maximum) for name, maximum in SMALL.items()}
    min_size = shape.span_h, shape.span_w
    return shape.with_(**cut | {"H": max(cut["H"], min_size[0]), "W": max(cut["W"], min_size[1]), "groups": 1})


# -- races and their rows ------------------------------------------------------------------------
@dataclass(frozen=True)
class Race:
    """Rows by rung name, at one shape and on one device. `caption` names the rows' settings if they differ, else ""."""

    rows: Mapping[str, Row]
    kind: str  # measured or recorded
    shape: ConvShape
    caption: str = ""
    stale: bool = False

    def lanes(self) -> list[race_chart.Lane]:
        return race_chart.lanes(LADDER.rungs, self.shape, self.rows)


def races(settings: RunSettings) -> list[Race]:
    """Returns the race measured here, then the recorded one.

    Without a current measurement or a recording at this shape, the nearest recorded shape is used."""
    found = []
    if (ran := st.session_state.get("ran")) and ran.rows:
        stale = ran.settings != settings
        found.append(Race(ran.rows, "measured", ran.settings.shape, str(ran.settings) if stale else "", stale))
    if rows := settings.recorded():
        found.append(Race(rows, "recorded", settings.shape))
    elif all(race.stale for race in found) and (match := nearest(settings)):
        found.append(match)
    return found


def nearest(settings: RunSettings) -> Race | None:
    """Returns the race at the nearest recorded shape, with every rung recorded there; None if there is none."""
    for rung in LADDER.rungs:
        match = records.nearest(rung.name, settings.shape, rung.default_tiles, settings.timing)
        if match and match.row["tiles"] == rung.default_tiles:
            recorded_shape = ConvShape(**match.row["shape"])
            rows = {
                r.name: row
                for r in LADDER.rungs
                if (row := records.recorded(r.name, recorded_shape, r.default_tiles, settings.timing))
            }
            return Race(rows, "recorded", recorded_shape, match.caption)
    return None


def why_not(rung: Rung, shape: ConvShape) -> str:
    """Returns why a rung cannot run a shape: a broken rule or a library's message; "" if nothing is known."""
    return "; ".join(rung.rules(shape, rung.default_tiles)) or unsupported.sentence(rung.name, shape)


def candidates(shape: ConvShape) -> list[Rung]:
    """Returns the rungs that can run a shape as far as known: the choices of the guess."""
    return [rung for rung in LADDER.rungs if not why_not(rung, shape)]


def without_lane(race: Race) -> list[race_chart.NotStarted]:
    """Returns the rungs without a lane in a race, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    engine = next(iter(race.rows.values()))["engine"]
    for rung in LADDER.rungs:
        if rung.name not in race.rows:
            by_reason.setdefault(reason(rung, race, engine), []).append(title(rung, engine))
    return [race_chart.NotStarted(tuple(titles), why) for why, titles in by_reason.items()]


def title(rung: Rung, engine: str) -> str:
    """Returns the title on an engine; the rung's general title if the engine does not run it."""
    return rung.title_on(engine) if engine in rung.engines else tr(rung.title)


def reason(rung: Rung, race: Race, engine: str) -> str:
    mode = next(iter(race.rows.values()))["mode"]
    if why := rung.why_not_on(engine):
        return why
    missing = (
        tr("not measured {caches} at this shape", caches=mode)
        if race.kind == "measured"
        else tr("not recorded {caches} at this shape", caches=mode)
    )
    return why_not(rung, race.shape) or _refusal(rung, race, engine) or missing


def _refusal(rung: Rung, race: Race, engine: str) -> str:
    """Returns why this machine could not measure a rung although every rule holds; "" for a recording."""
    if race.kind != "measured" or not availability.runs(rung, race.shape, rung.default_tiles):
        return ""
    return engines.refusal(engine, rung, race.shape, rung.default_tiles)
