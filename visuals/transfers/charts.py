"""Charts of the lesson on moving data: the total over the number of pieces, copies over their size. Plain Plotly figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.i18n import mark, tr
from kernels.transfers import model, recorded
from kernels.transfers.rates import WAYS, rates
from visuals import units
from visuals.charts.axes import Tokens, with_axes

if TYPE_CHECKING:  # with it comes Plotly
    from visuals.charts.plain_figure import PlainFigure

MOST = 32  # pieces
HEIGHT = 260
HUES = {"h2d_pinned": "input", "h2d_pageable": "input", "d2h_pinned": "output", "d2h_pageable": "output"}
TITLES = {
    "h2d_pinned": mark("to the GPU, pinned"),
    "h2d_pageable": mark("to the GPU, pageable"),
    "d2h_pinned": mark("back, pinned"),
    "d2h_pageable": mark("back, pageable"),
}
SIZES = tuple(4096 * 4**n for n in range(9))


def pieces(rows: int, tokens: Tokens) -> PlainFigure:
    """Returns the total over the number of pieces: predicted as a line, recorded as points, the best as a diamond."""
    best, points = model.best_pieces(rows, MOST)
    figure = with_axes(tr("pieces"), tr("total in ms"), HEIGHT, tokens)
    figure.update_layout(yaxis={"rangemode": "tozero"})
    xs, ys = zip(*points, strict=True)
    figure.add_scatter(x=list(xs), y=list(ys), name=tr("predicted"), mode="lines", line={"color": tokens["dim"]})
    if found := recorded.pieces_ms(rows):
        figure.add_scatter(
            x=list(found),
            y=list(found.values()),
            name=tr("recorded"),
            mode="markers",
            marker={"color": tokens["write"], "size": 8},
        )
    figure.add_scatter(
        x=[best],
        y=[dict(points)[best]],
        name=tr("best, predicted"),
        mode="markers",
        marker={"color": tokens["output"], "size": 11, "symbol": "diamond"},
    )
    return figure


def copies(tokens: Tokens) -> PlainFigure:
    """Returns the bandwidth of copies over their size, by direction and memory."""
    figure = with_axes(tr("bytes"), "GB/s", HEIGHT, tokens)
    figure.update_layout(xaxis={"type": "log"}, yaxis={"rangemode": "tozero"})
    record = (recorded.newest() or {}).get("copies", {})
    for way in WAYS:
        points = record.get(way) or [{"bytes": n, "ms": rates().copies[way].ms(n)} for n in SIZES]
        dash = "solid" if way.endswith("pinned") else "dot"
        figure.add_scatter(
            x=[p["bytes"] for p in points],
            y=[p["bytes"] / p["ms"] / 1e6 for p in points],
            name=tr(TITLES[way]),
            mode="lines",
            line={"color": tokens[HUES[way]], "dash": dash},
        )
    return figure


def best_text(rows: int) -> str:
    """Returns the best number of pieces and its total in a sentence, recorded if it is."""
    totals = recorded.pieces_ms(rows) or dict(model.best_pieces(rows, MOST)[1])
    best = min(totals, key=totals.__getitem__)
    if best == 1:
        return tr("One piece is the best: {total}.", total=units.time_(totals[best]))
    return tr(
        "{best} pieces are the best: {total}, against {one} in one piece.",
        best=best,
        total=units.time_(totals[best]),
        one=units.time_(totals[min(totals)]),
    )
