"""The map of winners: the fastest rung of each cell over two extents of a convolution. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape

from kernels.conv.shape import CONV_SINCE, ConvShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import LADDERS
from kernels.model.row import Row
from kernels.model.shape import ShapeError
from kernels.records.statistics import within_spread
from visuals import units
from visuals.conv.choose.families import FAMILIES, family, short

LADDER = LADDERS["conv"]
HINT = mark(
    "Under each name: time of the second fastest / time of the fastest. Point at a cell to see all times. Press it to race "
    "at that shape."
)


@dataclass(frozen=True)
class Axis:
    """One extent, or several extents that are equal. With R, the padding changes with the filter, so that sizes
    stay."""

    key: str
    title: str
    fields: tuple[str, ...]

    def value(self, s: ConvShape) -> int | None:
        """Returns the shape's value on the axis; None if the extents differ."""
        values = {getattr(s, name) for name in self.fields if not name.startswith("pad")}
        return values.pop() if len(values) == 1 else None

    def with_value(self, s: ConvShape, value: int) -> ConvShape:
        """Returns the shape with another value on this axis. Raises ShapeError if there is no such shape."""
        moved = {name: value for name in self.fields if not name.startswith("pad")}
        if self.key == "R" and _keeps_size(s):
            moved |= {"pad_h": value // 2, "pad_w": value // 2}
        return s.with_(**moved)


def _keeps_size(s: ConvShape) -> bool:
    return s.pad == s.after == (s.R // 2, s.S // 2)


AXES = {
    axis.key: axis
    for axis in (
        Axis("CK", "C = K", ("C", "K")),
        Axis("C", "C", ("C",)),
        Axis("K", "K", ("K",)),
        Axis("H", "H = W", ("H", "W")),
        Axis("R", "R = S", ("R", "S", "pad_h", "pad_w")),
        Axis("N", "N", ("N",)),
    )
}


def compatible_axes(key: str) -> list[str]:
    """Returns the axes that can be combined with one: those that share no extent with it."""
    return [other for other, axis in AXES.items() if not set(axis.fields) & set(AXES[key].fields)]


def fixed_values(s: ConvShape, across: Axis, down: Axis) -> tuple:
    """Returns all values that two shapes of one map have in common: all but the extents along the axes."""
    moved = (*across.fields, *down.fields)
    fixed = tuple((name, value) for name, value in asdict(s).items() if name not in moved)
    return (*fixed, _keeps_size(s)) if "R" in moved else fixed


@dataclass(frozen=True)
class Cell:
    shape: ConvShape
    rows: tuple[Row, ...]  # the fastest first

    @property
    def lead(self) -> float | None:
        """Returns the second's time divided by the first's; None if only one ran."""
        return self.rows[1]["median_ms"] / self.rows[0]["median_ms"] if len(self.rows) > 1 else None

    @property
    def tied(self) -> bool:
        return len(self.rows) > 1 and within_spread(*self.rows[:2])


@dataclass(frozen=True)
class Map:
    across: Axis
    down: Axis
    cells: Mapping[tuple[int, int], Cell]  # by (across, down)

    @property
    def values(self) -> tuple[list[int], list[int]]:
        across, down = (sorted({position[n] for position in self.cells}) for n in (0, 1))
        return across, down

    def rows(self) -> list[Row]:
        return [row for cell in self.cells.values() for row in cell.rows]


def by_shape(rows: Iterable[Row], mode: str) -> dict[ConvShape, list[Row]]:
    """Returns the ladder's rows at the default tile sizes in one mode, the fastest first. Only rows of the first
    row's device are used."""
    defaults = {rung.name: rung.default_tiles for rung in LADDER.rungs}
    rows_by_shape: dict[ConvShape, list[Row]] = {}
    device = ""
    for row in rows:
        if row["mode"] == mode and row["tiles"] == defaults.get(row["rung"]):
            device = device or row["device"]
            if row["device"] == device:
                rows_by_shape.setdefault(_shape(tuple(row["shape"].items())), []).append(row)
    return {shape: sorted(shape_rows, key=lambda row: row["median_ms"]) for shape, shape_rows in rows_by_shape.items()}


def _shape(params: tuple) -> ConvShape:
    return ConvShape(**dict(params))


def winners(
    rows_by_shape: Mapping[ConvShape, Sequence[Row]], around: ConvShape, across: Axis, down: Axis
) -> Map | None:
    """Returns the map through the shape `around`. If that has fewer than two lines in one direction, returns the
    largest map."""
    maps: dict[tuple, dict[tuple[int, int], Cell]] = {}
    for shape, rows in rows_by_shape.items():
        x, y = across.value(shape), down.value(shape)
        if x is not None and y is not None:
            maps.setdefault(fixed_values(shape, across, down), {})[x, y] = Cell(shape, tuple(rows))
    current = fixed_values(around, across, down)
    for cells in (maps.get(current, {}), max(maps.values(), key=len, default={})):
        winner_map = Map(across, down, _without_isolated(cells, around))
        if min(map(len, winner_map.values)) > 1:
            return winner_map
    return None


def _without_isolated(cells: Mapping[tuple[int, int], Cell], around: ConvShape) -> dict[tuple[int, int], Cell]:
    """Returns the cells without those that are alone in their line or column: nothing can be compared along it.
    The cell at `around` stays."""
    lines = [Counter(position[n] for position in cells) for n in (0, 1)]
    return {
        position: cell
        for position, cell in cells.items()
        if cell.shape == around or all(line[value] > 1 for line, value in zip(lines, position, strict=True))
    }


def is_on_map(winner_map: Map, s: ConvShape) -> bool:
    """Returns whether a shape differs from those of the map in nothing but its axes."""
    first = next(iter(winner_map.cells.values())).shape
    return fixed_values(s, winner_map.across, winner_map.down) == fixed_values(
        first, winner_map.across, winner_map.down
    )


def fixed_values_text(winner_map: Map) -> str:
    """Returns what all cells of a map have in common: "N=32, R=3, S=3, pad_h=1, pad_w=1"."""
    first = next(iter(winner_map.cells.values())).shape
    moved = (*winner_map.across.fields, *winner_map.down.fields)
    defaults = {
        "u": 1,
        "v": 1,
        "dilation_h": 1,
        "dilation_w": 1,
        "mode": "cross-correlation",
        "pad_h": 0,
        "pad_w": 0,
        **CONV_SINCE,
    }
    fixed = {n: v for n, v in asdict(first).items() if n not in moved and defaults.get(n) != v}
    text = ", ".join(f"{name}={value}" for name, value in fixed.items())
    same = _keeps_size(first) and first.R > 1
    return tr("{values}, padding that keeps the size", values=text) if "R" in moved and same else text


def counts(winner_map: Map) -> dict[str, int]:
    """Returns how many cells each family wins, by its key, in the order of FAMILIES."""
    won = [family(cell.rows[0]["rung"]).key for cell in winner_map.cells.values()]
    return {key: won.count(key) for key in FAMILIES if key in won}


def summary(winner_map: Map) -> str:
    """Returns sentences on how many cells each family wins, and how many are ties."""
    total, tied = len(winner_map.cells), sum(cell.tied for cell in winner_map.cells.values())
    won = ", ".join(
        f"{tr(FAMILIES[key].title)} {n}" for key, n in sorted(counts(winner_map).items(), key=lambda p: -p[1])
    )
    sentences = [tr("Fastest in {total} cells: {families}.", total=total, families=won)]
    if tied:
        sentences.append(
            tr("In {tied} of them, the first two show no measurable difference: their spreads overlap.", tied=tied)
        )
    present = Counter(
        key for cell in winner_map.cells.values() for key in {family(row["rung"]).key for row in cell.rows}
    )
    absent = [tr(FAMILIES[key].title) for key in FAMILIES if key not in present]
    partial = [f"{tr(FAMILIES[key].title)} {present[key]}" for key in FAMILIES if 0 < present[key] < total]
    if partial:
        sentences.append(tr("Timed in only some of the cells: {families}.", families=", ".join(partial)))
    if absent:
        sentences.append(tr("Not timed: {families}.", families=", ".join(absent)))
    return " ".join(sentences)


def planned(around: ConvShape, across: Axis, down: Axis, spans: Mapping[str, Sequence[int]]) -> list[ConvShape]:
    """Returns the shapes of a map to measure. Invalid shapes (a filter that does not fit) are left out."""
    found = []
    for d in spans[down.key]:
        for a in spans[across.key]:
            try:
                found.append(down.with_value(across.with_value(around, a), d))
            except ShapeError:
                continue
    return found


# -- HTML ----------------------------------------------------------------------------------------
def html(winner_map: Map, here: ConvShape, href) -> str:
    """Returns a table, `across` by `down`. Each cell has the winner, its lead over the second, and all times on
    hover. The shape `here` is ringed. `href(shape)` is the link of a cell, "" for none."""
    xs, ys = winner_map.values
    first = next(
        (cell for cell in winner_map.cells.values() if cell.shape == here), winner_map.cells[min(winner_map.cells)]
    )
    heads = "".join(f'<th scope="col">{decimal(f"{x:,}")}</th>' for x in xs)
    lines = "".join(
        f'<tr><th scope="row">{decimal(f"{y:,}")}</th>{"".join(_cell(winner_map.cells.get((x, y)), here, first, href) for x in xs)}</tr>'
        for y in ys
    )
    keys = "".join(
        f'<span class="kt-key" style="--kt-hue:var(--kt-{FAMILIES[key].token})">{tr(FAMILIES[key].title)} <b>{n}</b></span>'
        for key, n in counts(winner_map).items()
    )
    return (
        f'<div class="kt-map"><p class="kt-keys">{keys}<span>{tr(HINT)}</span></p><div class="kt-scroll"><table>'
        f"<thead><tr><td>{winner_map.across.title} →<br>{winner_map.down.title} ↓</td>{heads}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div></div>"
    )


def _cell(cell: Cell | None, here: ConvShape, described: Cell, href) -> str:
    if cell is None:
        return '<td class="kt-none">–</td>'
    first = cell.rows[0]
    lead = tr("only one") if cell.lead is None else tr("≈ tie") if cell.tied else f"{cell.lead:.2f}×"
    link = href(cell.shape)
    attributes = f'href="{escape(link)}" target="_self"' if link else 'tabindex="0"'
    kind = "kt-cell" + " kt-here" * (cell.shape == here) + " kt-described" * (cell is described)
    return (
        f'<td class="{kind}" style="--kt-hue:var(--kt-{family(first["rung"]).token})"><a {attributes}>'
        f"<b>{short(first)}</b><small>{lead}</small></a>{_tip(cell)}</td>"
    )


def _tip(cell: Cell) -> str:
    times = "".join(
        f"<li><span>{escape(LADDER.rung(row['rung']).title_on(row['engine']))}</span> <b>{units.time_(row['median_ms'])}</b></li>"
        for row in cell.rows
    )
    return f'<div class="kt-tip"><p>{escape(str(cell.shape))}</p><ol>{times}</ol></div>'
