"""Figure and sentences: measured speed of loops over tile size, and below it the predicted traffic past each cache.
Input: rows (kernels.records.row). Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import TYPE_CHECKING

from kernels.gemm.cpu_traffic import FLOAT, traffic_ratio
from kernels.gemm.shape import GemmShape
from kernels.i18n import decimal, mark, tr
from kernels.machine.memory_levels import Cache, shown
from kernels.records.statistics import fastest
from visuals import units
from visuals.charts.ladder_notes import capitalized
from visuals.charts.sweeps import Row, Tokens
from visuals.charts.tile import MAX_VALUE, Tile

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from plotly.graph_objects import Figure

HEIGHT = 420
UPPER_PX, LOWER_PX, LABEL_PX = 210, 105, 15  # approximate heights of the two panels and of a label
Lines = Sequence[tuple[str, Row]]  # (title, row) of rungs without tiles
DASHES = ("dot", "dash", "dashdot", "longdash", "longdashdot")
ROLES = ("input", "workspace", "filter")  # colour of each cache's line, L1 first


def block_tile(s: GemmShape) -> Tile:
    """Returns the tile size BLOCK of the blocked loops."""

    def share(value: int, cache: Cache) -> float:
        return traffic_ratio(s, value, cache.line_bytes, cache.bytes)

    return Tile("BLOCK", mark("3 tiles"), lambda value: 3 * FLOAT * value**2, share)


def chart(rows: Sequence[Row], lines: Lines, caches: Sequence[Cache], tile: Tile, tokens: Tokens) -> Figure:
    """Returns the figure. Above: the rate at each value of a tile size with its spread (p20 to p80), a star at the best,
    lines for other rungs. Below: the predicted traffic past each cache. A dotted line marks where `tile.what` fills a
    cache."""
    from plotly.subplots import make_subplots

    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.09, row_heights=[0.66, 0.34])
    rows = sorted(rows, key=tile.value_in)
    values = [tile.value_in(row) for row in rows]
    _measured(figure, rows, tile, tokens)
    _rungs(figure, lines, max(map(_rate, [*rows, *(row for _, row in lines)])), tokens)
    _predicted(figure, tile, values, caches, tokens)
    _marks(figure, tile, values, caches, tokens)
    labels = [str(v) if v & (v - 1) == 0 else "" for v in values]  # only powers of two have a label
    figure.update_xaxes(
        type="log",
        tickvals=values,
        ticktext=labels,
        tickangle=0,
        ticks="outside",
        tickcolor=tokens["line"],
        showgrid=False,
        **_axis(tokens),
    )
    figure.update_xaxes(title={"text": tile.name, "standoff": 4}, row=2, col=1)
    figure.update_yaxes(gridcolor=tokens["line"], **_axis(tokens))
    figure.update_yaxes(title={"text": "GFLOP/s", "standoff": 6}, rangemode="tozero", row=1, col=1)
    figure.update_yaxes(
        title={"text": tr("bytes, share of naive"), "standoff": 6}, type="log", tickformat=".0%", dtick=1, row=2, col=1
    )
    return figure.update_layout(
        height=HEIGHT,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        margin={"l": 0, "r": 110, "t": 24, "b": 4},
        font={"color": tokens["ink"], "size": 13},
        hoverlabel={"bgcolor": tokens["panel"], "bordercolor": tokens["line"], "font": {"color": tokens["ink"]}},
    )


def _rate(row: Row, field: str = "median_ms") -> float:
    """Returns GFLOP/s."""
    return row["flops"] / row[field] / 1e6


def _measured(figure: Figure, rows: Sequence[Row], tile: Tile, tokens: Tokens) -> None:
    rates, top = [_rate(row) for row in rows], fastest(rows)
    figure.add_scatter(
        x=[tile.value_in(row) for row in rows],
        y=rates,
        mode="lines+markers",
        row=1,
        col=1,
        line={"color": tokens["output"], "width": 2},
        marker={"size": 7},
        error_y={
            "type": "data",
            "symmetric": False,
            "color": tokens["ink"],
            "thickness": 1,
            "width": 3,
            "array": [_rate(row, "p20_ms") - rate for row, rate in zip(rows, rates, strict=True)],
            "arrayminus": [rate - _rate(row, "p80_ms") for row, rate in zip(rows, rates, strict=True)],
        },
        customdata=[_hover_texts(row) for row in rows],
        hovertemplate=f"{tile.name} %{{x}}: %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
    )
    assert top is not None  # a chart has rows
    figure.add_scatter(
        x=[tile.value_in(top)],
        y=[_rate(top)],
        mode="markers",
        hoverinfo="skip",
        row=1,
        col=1,
        marker={"symbol": "star", "size": 14, "color": tokens["write"]},
    )


def _hover_texts(row: Row) -> tuple[str, str]:
    times = {field: units.time_(row[f"{field}_ms"]) for field in ("median", "p20", "p80")}
    return units.rate(row["flops"], row["median_ms"]), tr(
        "median {median}, p20 {p20}, p80 {p80}, n = {n}", n=row["n"], **times
    )


def _rungs(figure: Figure, lines: Lines, max_rate: float, tokens: Tokens) -> None:
    dim, rates = tokens["dim"], [_rate(row) for _, row in lines]
    for rate, dash in zip(rates, DASHES, strict=False):
        figure.add_hline(y=rate, line={"color": dim, "width": 1.5, "dash": dash}, row=1, col=1)  # pyright: ignore[reportArgumentType]  # Plotly takes numbers
    shifts = _apart([rate / max_rate for rate in rates], UPPER_PX)
    for (title, _), rate, shift in zip(lines, rates, shifts, strict=True):
        _at_right(figure, "y", rate, title, dim, shift)


def _predicted(figure: Figure, tile: Tile, values: list[int], caches: Sequence[Cache], tokens: Tokens) -> None:
    cache_shares = [[tile.share(value, cache) for value in values] for cache in caches]
    for cache, role, dash, shares in zip(caches, ROLES, ("solid", *DASHES), cache_shares, strict=False):
        figure.add_scatter(
            x=values,
            y=shares,
            mode="lines+markers",
            row=2,
            col=1,
            marker={"size": 4},
            line={"color": tokens[role], "width": 2, "dash": dash},
            customdata=[units.share(r) for r in shares],
            hovertemplate=tr(
                "bytes past the {cache}: {share} of naive, predicted", cache=tr(cache.name), share="%{customdata}"
            )
            + "<extra></extra>",
        )
    ends = [log10(shares[-1]) for shares in cache_shares]
    lowest, highest = (
        (log10(extreme(r for shares in cache_shares for r in shares)) for extreme in (min, max))
        if cache_shares
        else (0, 0)
    )
    shifts = _apart([(end - lowest) / max(highest - lowest, 1e-9) for end in ends], LOWER_PX)
    for cache, role, end, shift in zip(caches, ROLES, ends, shifts, strict=False):
        _at_right(figure, "y2", end, tr("past {cache}", cache=cache.name.split()[0]), tokens[role], shift)


def _apart(heights: Sequence[float], px: float) -> list[float]:
    """Returns how far to shift labels up, in px, so that none overlap. heights: 0 to 1 of a panel of `px`."""
    shifts, below = [0.0] * len(heights), float("-inf")
    for i in sorted(range(len(heights)), key=lambda i: heights[i]):
        at = max(heights[i] * px, below + LABEL_PX)
        shifts[i], below = at - heights[i] * px, at
    return shifts


def _marks(figure: Figure, tile: Tile, values: list[int], caches: Sequence[Cache], tokens: Tokens) -> None:
    """Draws a vertical line where each cache is full, with its name on top, if it is within the values."""
    for cache, role in zip(caches, ROLES, strict=False):
        if values[0] <= (full := tile.largest_fitting(cache.bytes)) <= values[-1]:
            figure.add_vline(x=full, line={"color": tokens[role], "width": 1, "dash": "dot"})
            figure.add_annotation(
                x=log10(full),
                xref="x",
                y=1,
                yref="paper",
                text=tr("{tiles} fill {cache}", tiles=tr(tile.what), cache=cache.name.split()[0]),
                showarrow=False,
                yanchor="bottom",
                font={"size": 11, "color": tokens[role]},
            )


def _at_right(figure: Figure, yref: str, y: float, text: str, colour: str, yshift: float) -> None:
    figure.add_annotation(
        x=1,
        xref="paper",
        y=y,
        yref=yref,
        text=text,
        showarrow=False,
        xanchor="left",
        xshift=6,
        yshift=yshift,
        font={"size": 12, "color": colour},
    )


def _axis(tokens: Tokens) -> dict:
    return {
        "fixedrange": True,
        "linecolor": tokens["line"],
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": 12, "color": tokens["dim"]},
        "title_font": {"size": 12, "color": tokens["dim"]},
    }


# -- sentences ------------------------------------------------------------------------------------
def conclusion(rows: Sequence[Row], tile: Tile) -> str:
    """Returns the best value and its rate; "" without rows."""
    top = fastest(rows)
    if top is None:
        return ""
    rate = units.rate(top["flops"], top["median_ms"])
    return tr("The fastest is {name} {value} with {rate}.", rate=rate, **_value(top, tile))


def _value(row: Row, tile: Tile) -> dict[str, str]:
    return {"name": tile.name, "value": decimal(f"{tile.value_in(row):,}")}


def summary(rows: Sequence[Row], lines: Lines, caches: Sequence[Cache], tile: Tile) -> str:
    """Returns sentences: the speedup of the best value over other rungs, and the smallest cache that its tiles fit in."""
    top = fastest(rows)
    if top is None:
        return ""
    value = _value(top, tile)
    sentences = [_comparison(top, title, row, value) for title, row in lines]
    size = tile.bytes_at(tile.value_in(top))
    if smallest_cache := next((cache for cache in caches if size <= cache.bytes), None):
        sentences.append(
            tr(
                "Its {tiles} have {size} and fit in the {cache} ({bytes}).",
                tiles=tr(tile.what),
                size=units.bytes_(size),
                cache=tr(smallest_cache.name),
                bytes=units.bytes_(smallest_cache.bytes),
            )
        )
    return " ".join(sentences)


def _comparison(top: Row, title: str, row: Row, value: dict[str, str]) -> str:
    """Returns a sentence that names the faster of the best value and another rung first."""
    ratio = row["median_ms"] / top["median_ms"]
    if ratio >= 1:
        return tr("{name} {value} is {ratio}× as fast as {kernel}.", ratio=units.ratio(ratio), kernel=title, **value)
    kernel = capitalized(title)
    return tr("{kernel} is {ratio}× as fast as {name} {value}.", ratio=units.ratio(1 / ratio), kernel=kernel, **value)


def caches_sentence(caches: Sequence[Cache], tile: Tile) -> str:
    """Returns sentences on this processor's caches and the value that fills each."""
    if not caches:
        return tr(
            "This system does not report the sizes of its caches. The chart has no cache marks and no prediction."
        )
    line = caches[0].line_bytes
    sizes = (_cache(cache, tile) for cache in caches)
    lines = tr("A cache line has {bytes} bytes ({floats} floats).", bytes=line, floats=line // FLOAT)
    return " ".join((*sizes, lines))


def _cache(cache: Cache, tile: Tile) -> str:
    """Returns a cache's size and the value whose tiles fill it."""
    full = tile.largest_fitting(cache.bytes)
    fields = {
        "cache": tr(cache.name),
        "size": units.bytes_(cache.bytes),
        "each": shown(cache.each),
        "tiles": tr(tile.what),
        "name": tile.name,
        "value": decimal(f"{full:,}"),
    }
    if full == MAX_VALUE:
        return tr("{cache}: {size} ({each}).", **fields)
    if full:
        return tr("{cache}: {size} ({each}), filled by {tiles} of {name} {value}.", **fields)
    return tr("{cache}: {size} ({each}), too small for {tiles} of {name} 1.", **fields)
