"""A network's convolutions as recorded: the best rung of each layer, its share, and what one rung throughout would take.

Pure functions; times in ms, of one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kernels.conv.networks import Layer, Network
from kernels.ladders import LADDERS
from kernels.model.rung import Rung
from visuals.charts import units
from visuals.conv.choose.families import family, short

Row = Mapping
LADDER = LADDERS["conv"]
LIBRARY = "cuDNN"
CUT = 6  # times the shortest bar: longer ones are drawn cut


@dataclass(frozen=True)
class Timed:
    """A layer with its rows by rung name, and the names of the rungs that cannot run it."""

    layer: Layer
    rows: Mapping[str, Row]
    barred: frozenset[str] = frozenset()

    @property
    def best(self) -> Row | None:
        return self._least(lambda rung: True)

    @property
    def own(self) -> Row | None:
        """The best that is not cuDNN's."""
        return self._least(lambda rung: LADDER.rung(rung).library != LIBRARY)

    @property
    def library(self) -> Row | None:
        return self._least(lambda rung: LADDER.rung(rung).library == LIBRARY)

    def _least(self, of: Callable[[str], bool]) -> Row | None:
        rows = [row for rung, row in self.rows.items() if of(rung)]
        return min(rows, key=lambda row: row["median_ms"], default=None)

    def all_of(self, row: Row | None) -> float | None:
        """Its time as often as the layer occurs."""
        return row and row["median_ms"] * self.layer.count


Choice = Callable[[Timed], Row | None]


def timed(
    network: Network,
    recorded: Callable[[str, object, dict], Row | None],
    why_not: Callable[[Rung, object], str],
) -> list[Timed]:
    """Each layer with the recordings of every rung; `recorded(rung, shape, tiles)` gives one or None, `why_not(rung,
    shape)` what keeps a rung from it, "" where nothing is known to."""
    return [
        Timed(
            layer,
            {r.name: row for r in LADDER.rungs if (row := recorded(r.name, layer.shape, r.default_tiles))},
            frozenset(r.name for r in LADDER.rungs if why_not(r, layer.shape)),
        )
        for layer in network.layers
    ]


def total(layers: Sequence[Timed], choice: Choice) -> float | None:
    """The network's time under a choice for each layer; None where it has none for some."""
    parts = [one.all_of(choice(one)) for one in layers]
    return None if None in parts else sum(parts)


@dataclass(frozen=True)
class Throughout:
    """One rung for every layer: its total, or of how many shapes it has no time, and how many it cannot run."""

    rung: str
    ms: float | None
    missing: int
    cannot: int = 0

    def why(self, shapes: int) -> str:
        """Why it has no total, of so many shapes."""
        counts = ("cannot", self.cannot), ("not recorded", self.missing - self.cannot)
        return ", ".join(f"{word} {n} of {shapes}" for word, n in counts if n)


def throughout(layers: Sequence[Timed]) -> list[Throughout]:
    """Every rung used for all layers: those that can first, the fastest before; then those with the fewest gaps."""
    found = [
        Throughout(r.name, total(layers, lambda one, name=r.name: one.rows.get(name)),
                   sum(r.name not in one.rows for one in layers),
                   sum(r.name not in one.rows and r.name in one.barred for one in layers))
        for r in LADDER.rungs
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.missing, one.ms or 0.0))


def told(layers: Sequence[Timed]) -> str:
    """What choosing buys, in a sentence; "" where a layer has no time."""
    best = total(layers, lambda one: one.best)
    if best is None:
        return ""
    able = [one for one in throughout(layers) if one.ms is not None]
    text = f"The best rung for each layer: {units.time_(best)} for the network's convolutions."
    if able:
        ratio = units.ratio(able[0].ms / best)
        text += f" The best single one, {LADDER.rung(able[0].rung).title} throughout, takes {ratio} times as long."
    for name, choice in (
        ("cuDNN's rungs", lambda one: one.library),
        ("rungs that are not cuDNN's", lambda one: one.own),
    ):
        if _both(layers) and (ms := total(layers, choice)):
            took = "as fast" if ms < 1.005 * best else f"{ms / best:.2f} times as long"
            text += f" Choosing among {name} alone: {took}."
    return text


def _both(layers: Sequence[Timed]) -> bool:
    """Whether cuDNN was recorded beside ours: else there is nothing to choose from."""
    return any(one.library for one in layers)


# -- HTML ----------------------------------------------------------------------------------------
def html(layers: Sequence[Timed], href: Callable[[object], str]) -> str:
    """A line for each distinct shape. Shares are of the sum of the bests of the layers that have a time."""
    parts = [one.all_of(one.best) or 0.0 for one in layers]
    sums, most, both = sum(parts), max(parts), _both(layers)
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("layer", "×", "best", "time", "share", *("best of ours", "best of cuDNN")[: 2 * both])
    )
    lines = "".join(_line(one, sums, most, both, href) for one in layers)
    return f'<div class="kt-scroll" tabindex="0" role="region" aria-label="Layers"><table class="kt-layers"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'


def _line(one: Timed, sums: float, most: float, both: bool, href: Callable[[object], str]) -> str:
    layer, best = one.layer, one.best
    to = href(layer.shape)
    name = f'<a href="{escape(to)}" target="_self">{escape(layer.name)}</a>' if to else escape(layer.name)
    what = f'<th scope="row"><b>{name}</b> <small>{escape(_shape(layer.shape))}</small></th><td>{layer.count}</td>'
    if not best:
        return f'<tr>{what}<td colspan="5" class="kt-none">not recorded</td></tr>'
    part = one.all_of(best) / sums
    return (
        f'<tr style="--kt-hue:var(--kt-{family(best["rung"]).token})">{what}<td class="kt-who">{short(best)}</td>'
        f"<td><b>{units.time_(best['median_ms'])}</b></td>"
        f'<td class="kt-share"><i style="width:{100 * part * sums / most:.1f}%"></i><span>{units.share(part)}</span></td>'
        + f"<td>{_one(one.own)}</td><td>{_one(one.library)}</td>" * both
        + "</tr>"
    )


def _one(row: Row | None) -> str:
    if not row:
        return "–"
    name = short(row).removeprefix("cuDNN ")
    return f"{units.time_(row['median_ms'])} <small>{name}</small>"


def _shape(s) -> str:
    """A layer's shape without the batch, which all share."""
    return str(s).partition(" ")[2]


def totals(layers: Sequence[Timed]) -> str:
    """Bars: the best choice, then each rung throughout, as far as it can."""
    best = total(layers, lambda one: one.best)
    lines = [("best of each layer", best, "", "ink")] if best else []
    lines += [
        (
            LADDER.rung(one.rung).title,
            one.ms,
            one.why(len(layers)),
            family(one.rung).token,
        )
        for one in throughout(layers)
    ]
    least = min((ms for _, ms, _, _ in lines if ms), default=1.0)
    most = min(max((ms for _, ms, _, _ in lines if ms), default=1.0), CUT * least)
    text = "".join(_bar(title, ms, why, token, most) for title, ms, why, token in lines)
    return f'<dl class="kt-totals">{text}</dl>'


def _bar(title: str, ms: float | None, why: str, token: str, most: float) -> str:
    if ms is None:
        return f'<div class="kt-cannot"><dt>{escape(title)}</dt><dd>{escape(why)}</dd></div>'
    cut = ' class="kt-cut"' if ms > most else ""
    return (
        f'<div><dt>{escape(title)}</dt><dd><i{cut} style="width:{min(100.0, 100 * ms / most):.2f}%;background:var(--kt-{token})"></i></dd>'
        f"<dd><b>{units.time_(ms)}</b></dd></div>"
    )
