"""The chart of the cost model: predicted lines over the length, with the recorded times as points. Tables of collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from kernels.collectives import cost, recorded
from kernels.collectives.recorded import NCCL
from kernels.collectives.shape import ALGORITHMS
from kernels.i18n import tr
from visuals import units
from visuals.charts.bars import FONT
from visuals.collectives.captions import ALGORITHM_TITLES, TITLES
from visuals.collectives.evidence import SIZES

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from visuals.charts.plain_figure import PlainFigure

HEIGHT = 320
STYLES = (
    ("input", "solid", "circle"),
    ("output", "dash", "square"),
    ("filter", "dot", "diamond"),
    ("workspace", "dashdot", "triangle-up"),
    ("write", "longdash", "cross"),
    ("ink", "solid", "x"),
)


def lines(kind: str, ranks: int) -> dict[str, list[tuple[int, float]]]:
    """Returns (bytes, predicted ms) of each algorithm and NCCL over SIZES."""
    return {
        name: [(nbytes, recorded.predicted_ms(kind, name, ranks, nbytes)) for nbytes in SIZES.values()]
        for name in (*ALGORITHMS[kind], NCCL)
    }


def model(kind: str, ranks: int, chosen: str, tokens: Mapping[str, str]) -> PlainFigure:
    """Returns the figure of predicted times over the length, the line of `chosen` wide, and the recorded times."""
    from visuals.charts.plain_figure import PlainFigure

    figure = PlainFigure()
    for (name, points), (role, dash, symbol) in zip(lines(kind, ranks).items(), STYLES, strict=False):
        title = tr(ALGORITHM_TITLES[name])
        figure.add_scatter(
            x=[n for n, _ in points],
            y=[ms for _, ms in points],
            mode="lines",
            name=title,
            line={"color": tokens[role], "dash": dash, "width": 3 if name == chosen else 1.5},
            hovertemplate=f"{title}: %{{y:.3g}} ms<extra></extra>",
        )
        rows = recorded.rows(kind, name, ranks)
        if rows:
            figure.add_scatter(
                x=[row["bytes"] for row in rows],
                y=[row["median_ms"] for row in rows],
                mode="markers",
                showlegend=False,
                marker={"color": tokens[role], "symbol": symbol, "size": 7},
                hovertemplate=tr("{name}, recorded", name=title) + ": %{y:.3g} ms<extra></extra>",
            )
    axis = {"gridcolor": tokens["line"], "zeroline": False, "color": tokens["dim"], "type": "log"}
    shown = list(SIZES.items())[::2]
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 56, "r": 8, "t": 8, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": tokens["ink"]},
        legend={"orientation": "h", "y": 1.12, "x": 0},
        xaxis={
            **axis,
            "tickvals": [n for _, n in shown],
            "ticktext": [name for name, _ in shown],
            "title": {"text": tr("bytes on each GPU")},
        },
        yaxis={**axis, "title": {"text": tr("time in ms")}, "dtick": 1},
    )
    return figure


def accuracy(kind: str, ranks: int) -> list[tuple[str, int, float]]:
    """Returns (algorithm, points, largest error) of each fit to recorded times."""
    found = ((name, recorded.fitted(kind, name, ranks)) for name in (*ALGORITHMS[kind], NCCL))
    return [(name, len(fit.errors), fit.worst) for name, fit in found if fit]


def accuracy_text(found: Sequence[tuple[str, int, float]]) -> str:
    """Returns how far the model is from the recorded times, in a sentence."""
    if not found:
        return tr("No time of this many GPUs is recorded yet. The lines follow from two times of NCCL on two H200s.")
    name, n, worst = max(found, key=lambda one: one[2])
    within = sum(error <= cost.GOAL for _, _, error in found)
    return tr(
        "{within} of {all} algorithms are predicted within {goal}. The largest error is {worst}, {name}, of {n} points.",
        within=within,
        all=len(found),
        goal=units.share(cost.GOAL),
        worst=units.share(worst),
        name=tr(ALGORITHM_TITLES[name]),
        n=n,
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> str:
    """Returns an HTML table. Its first column is the rows' heads."""
    first = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines_ = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<table class="kt-table kt-shares"><tr>{first}</tr>{lines_}</table></div>'
    )


def kinds(ranks: int, nbytes: int) -> str:
    """Returns a table of all collectives: rounds, bytes of the busiest port, the predicted or recorded time of NCCL."""
    rows = []
    for kind, algorithms in ALGORITHMS.items():
        for algorithm in algorithms:
            found = cost.traffic(kind, algorithm, ranks, nbytes)
            rows.append(
                (
                    tr(TITLES[kind]),
                    tr(ALGORITHM_TITLES[algorithm]),
                    str(sum(n for n, _ in found)),
                    units.bytes_(sum(n * b for n, b in found)),
                    units.time_(recorded.predicted_ms(kind, algorithm, ranks, nbytes)),
                )
            )
    head = (tr("collective"), tr("algorithm"), tr("rounds"), tr("bytes of the busiest port"), tr("predicted"))
    return table(head, rows, tr("All collectives"))
