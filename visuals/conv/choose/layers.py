"""Recordings of a network's convolutions: the best rung of each layer, its share, and the time with one rung for
all layers.

Pure functions; times in ms, of one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kernels.conv.networks import Layer, Network
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.ladders import LADDERS
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.records.statistics import fastest
from visuals import units
from visuals.conv.choose.families import family, short
from visuals.conv.choose.race import style

LADDER = LADDERS["conv"]
LIBRARY = "cuDNN"
CUT = 6  # times the shortest bar: longer bars are cut
FASTER = 1.005  # a smaller ratio of two totals is no difference


@dataclass(frozen=True)
class Timed:
    """A layer with its rows by rung name, and the names of the rungs that cannot run it."""

    layer: Layer
    rows: Mapping[str, Row]
    unsupported: frozenset[str] = frozenset()

    @property
    def best(self) -> Row | None:
        return self._fastest(lambda rung: True)

    @property
    def ours(self) -> Row | None:
        """Returns the best row that is not cuDNN's."""
        return self._fastest(lambda rung: LADDER.rung(rung).library != LIBRARY)

    @property
    def library(self) -> Row | None:
        return self._fastest(lambda rung: LADDER.rung(rung).library == LIBRARY)

    def _fastest(self, accepts: Callable[[str], bool]) -> Row | None:
        return fastest(row for rung, row in self.rows.items() if accepts(rung))

    def total_of(self, row: Row | None) -> float | None:
        """Returns the time of a row, multiplied by how often the layer occurs."""
        return None if row is None else row["median_ms"] * self.layer.count


Choice = Callable[[Timed], Row | None]


def timed(
    network: Network,
    recorded: Callable[[str, ConvShape, Mapping[str, int]], Row | None],
    why_not: Callable[[Rung, ConvShape], str],
) -> list[Timed]:
    """Returns each layer with the recordings of every rung. `recorded(rung, shape, tiles)` returns a row or None.
    `why_not(rung, shape)` returns why a rung cannot run, "" if no reason is known."""
    return [
        Timed(
            layer,
            {r.name: row for r in LADDER.rungs if (row := recorded(r.name, layer.shape, r.default_tiles))},
            frozenset(r.name for r in LADDER.rungs if why_not(r, layer.shape)),
        )
        for layer in network.layers
    ]


def total(layers: Sequence[Timed], choice: Choice) -> float | None:
    """Returns the network's time with a choice for each layer; None if a layer has no row."""
    parts = [entry.total_of(choice(entry)) for entry in layers]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


@dataclass(frozen=True)
class SingleRungTotal:
    """One rung for every layer: its total, the number of shapes without a time, and the number that it cannot
    run."""

    rung: str
    ms: float | None
    missing: int
    cannot: int = 0

    def why(self, shapes: int) -> str:
        """Returns why it has no total, out of so many shapes."""
        reasons = []
        if self.cannot:
            reasons.append(tr("cannot run {n} of {shapes}", n=self.cannot, shapes=shapes))
        if missing := self.missing - self.cannot:
            reasons.append(tr("not recorded {n} of {shapes}", n=missing, shapes=shapes))
        return ", ".join(reasons)


def single_rung_totals(layers: Sequence[Timed]) -> list[SingleRungTotal]:
    """Returns every rung used for all layers. Complete rungs come first, the fastest before the others. Then come
    those with the fewest gaps."""
    found = [
        SingleRungTotal(
            r.name,
            total(layers, lambda entry, name=r.name: entry.rows.get(name)),
            sum(r.name not in entry.rows for entry in layers),
            sum(r.name not in entry.rows and r.name in entry.unsupported for entry in layers),
        )
        for r in LADDER.rungs
    ]
    return sorted(found, key=lambda entry: (entry.missing, entry.ms or 0.0))


def summary(layers: Sequence[Timed]) -> str:
    """Returns sentences on what choosing per layer gains; "" if a layer has no time."""
    best = total(layers, lambda entry: entry.best)
    if best is None:
        return ""
    complete = [(entry.rung, entry.ms) for entry in single_rung_totals(layers) if entry.ms is not None]
    sentences = [
        tr("With the best kernel for each layer, the network’s convolutions take {time}.", time=units.time_(best))
    ]
    if complete:
        title, ratio = tr(LADDER.rung(complete[0][0]).title), complete[0][1] / best
        sentences.append(
            tr("The best single kernel, {kernel}, takes {ratio}× that time.", kernel=title, ratio=units.ratio(ratio))
            if ratio >= FASTER
            else tr("The best single kernel, {kernel}, takes the same time.", kernel=title)
        )
    if _both(layers):
        if ms := total(layers, lambda entry: entry.library):
            sentences.append(
                tr("With the kernels of cuDNN alone: {ratio}× that time.", ratio=f"{ms / best:.2f}")
                if ms >= FASTER * best
                else tr("With the kernels of cuDNN alone: the same time.")
            )
        if ms := total(layers, lambda entry: entry.ours):
            sentences.append(
                tr("Without the kernels of cuDNN: {ratio}× that time.", ratio=f"{ms / best:.2f}")
                if ms >= FASTER * best
                else tr("Without the kernels of cuDNN: the same time.")
            )
    return " ".join(sentences)


def _both(layers: Sequence[Timed]) -> bool:
    """Returns whether cuDNN was recorded too. If not, there is nothing to compare."""
    return any(entry.library for entry in layers)


# -- HTML ----------------------------------------------------------------------------------------
def html(layers: Sequence[Timed], href: Callable[[ConvShape], str]) -> str:
    """Returns a table with one line per distinct shape. Shares are of the sum of the best times of the layers
    that have one."""
    parts = [entry.total_of(entry.best) or 0.0 for entry in layers]
    sums, max_ms, both = sum(parts), max(parts), _both(layers)
    names = [tr("layer"), "×", tr("best"), tr("time"), tr("share")] + [tr("best of ours"), tr("best of cuDNN")] * both
    headings = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = "".join(_line(entry, sums, max_ms, both, href) for entry in layers)
    name = tr("Layers")
    return f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{name}"><table class="kt-layers"><thead><tr>{headings}</tr></thead><tbody>{lines}</tbody></table></div>'


def _line(entry: Timed, sums: float, max_ms: float, both: bool, href: Callable[[ConvShape], str]) -> str:
    layer, best = entry.layer, entry.best
    link = href(layer.shape)
    name = f'<a href="{escape(link)}" target="_self">{escape(layer.name)}</a>' if link else escape(layer.name)
    head = f'<th scope="row"><b>{name}</b> <small>{escape(_shape(layer.shape))}</small></th><td>{layer.count}</td>'
    if not best:
        missing = tr("not recorded")
        return f'<tr>{head}<td colspan="5" class="kt-none">{missing}</td></tr>'
    part = (entry.total_of(best) or 0.0) / sums
    return (
        f'<tr style="--kt-hue:var(--kt-{family(best["rung"]).token})">{head}<td class="kt-who">{short(best)}</td>'
        f"<td><b>{units.time_(best['median_ms'])}</b></td>"
        f'<td class="kt-share"><i style="width:{100 * part * sums / max_ms:.1f}%"></i><span>{units.share(part)}</span></td>'
        + f"<td>{_time_cell(entry.ours)}</td><td>{_time_cell(entry.library)}</td>" * both
        + "</tr>"
    )


def _time_cell(row: Row | None) -> str:
    if not row:
        return "–"
    name = short(row).removeprefix("cuDNN ")
    return f"{units.time_(row['median_ms'])} <small>{name}</small>"


def _shape(s) -> str:
    """Returns a layer's shape without the batch, which is the same for all."""
    return str(s).partition(" ")[2]


def totals(layers: Sequence[Timed]) -> str:
    """Returns bars: the best choice, then each rung for all layers. Rungs without a total have their reason."""
    best = total(layers, lambda entry: entry.best)
    lines = [(tr("best for each layer"), best, "", "ink")] if best else []
    lines += [
        (tr(LADDER.rung(entry.rung).short_title), entry.ms, entry.why(len(layers)), family(entry.rung).token)
        for entry in single_rung_totals(layers)
    ]
    min_ms = min((ms for _, ms, _, _ in lines if ms), default=1.0)
    max_ms = min(max((ms for _, ms, _, _ in lines if ms), default=1.0), CUT * min_ms)
    text = "".join(_bar(title, ms, why, token, max_ms) for title, ms, why, token in lines)
    return f'<dl class="kt-totals">{text}</dl>'


def _bar(title: str, ms: float | None, why: str, token: str, max_ms: float) -> str:
    if ms is None:
        return f'<div class="kt-cannot"><dt>{escape(title)}</dt><dd>{escape(why)}</dd></div>'
    cut = ' class="kt-cut"' if ms > max_ms else ""
    bar = style(background=f"var(--kt-{token})", width=f"{min(100.0, 100 * ms / max_ms):.2f}%")
    return f'<div><dt>{escape(title)}</dt><dd><i{cut} style="{bar}"></i></dd><dd><b>{units.time_(ms)}</b></dd></div>'
