"""What Winograd saves and what it costs: operations counted from the matrices, errors measured, and their figure.

Operations: a zero entry costs nothing, an entry of 1 or -1 costs no multiplication, n terms cost n - 1 additions.
X d X^T is X on each column of d, then on each row of the result. (kernels.conv.winograd_matrices.operations_2d)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from kernels import records
from kernels.conv import winograd_matrices
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import positions, terms_of_part, tiles_of
from kernels.conv.winograd_cpu import R, input_tiles, output_maps, round_up_to_4, transform_2d
from kernels.i18n import mark, tr, trn
from kernels.ladders import find
from kernels.model.launch import ceil
from kernels.model.verify import relative_error
from visuals import units
from visuals.charts import bars
from visuals.charts.bars import FONT

if TYPE_CHECKING:  # Plotly is slow to import: only once a chart is drawn
    from plotly.graph_objects import Figure

TILES = (2, 4, 6)  # m of the kernels
MEASURED = (0, *TILES, 8)  # 0: direct convolution
SIDE, FILTERS = 24, 4  # outputs along each side, number of filters: whole tiles for every m measured
STORED = {"FP32": np.float32, "FP16": np.float16}
HEIGHT = 300
WORK_PX = bars.height(1 + len(TILES))  # one bar for direct convolution
NAMES = {0: mark("direct"), **{m: f"{m}×{m}" for m in MEASURED[1:]}}
# Rungs with a known tile size m; 0 is direct convolution, None is read from the row.
RUNGS = {"conv/implicit-gemm": 0, "conv/winograd-2x2": 2, "conv/winograd-4x4": 4, "conv/winograd-nonfused": None}
Tokens = Mapping[str, str]


# -- counted -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Work:
    """FLOPs and bytes of F(m x m, 3 x 3) at a shape. Each input tile is transformed once."""

    product: int
    filter: int  # FLOPs of the transforms
    input: int
    output: int
    U: int  # bytes of the workspaces
    V: int
    Z: int
    moved: int  # bytes that the transforms read and write

    @property
    def transforms(self) -> int:
        return self.filter + self.input + self.output

    @property
    def flops(self) -> int:
        return self.product + self.transforms


def work(s: ConvShape, m: int) -> Work:
    """Returns the work of the nonfused kernel. Its transforms read x and w once, write U and V, read Z and write
    y."""
    t, tiles, T2 = winograd_matrices.derive(m, R), tiles_of(s, m), positions(m)
    G, BT, AT = (winograd_matrices.operations_2d(X).flops for X in (t.G, t.BT, t.AT))
    parts = ceil(s.C, terms_of_part(s, find("conv/winograd-nonfused").default_tiles | {"M": m}))
    U, V, Z = (
        4 * T2 * s.C * round_up_to_4(s.K),
        4 * T2 * s.C * round_up_to_4(tiles),
        4 * parts * T2 * s.K * round_up_to_4(tiles),
    )
    return Work(
        2 * T2 * tiles * s.K * s.C, G * s.K * s.C, BT * tiles * s.C, AT * tiles * s.K, U, V, Z, s.bytes + U + V + Z
    )


def _best_tile(s: ConvShape) -> tuple[int, Work]:
    """Returns the m with the fewest FLOPs at a shape, and its work."""
    m = min(TILES, key=lambda m: work(s, m).flops)
    return m, work(s, m)


def tile_sentence() -> str:
    """Returns the multiplications of the smallest tile, compared with direct convolution."""
    m = TILES[0]
    direct, winograd = winograd_matrices.multiplications_2d(m, R)
    return tr(
        "A tile of {m}×{m} outputs needs {winograd} multiplications instead of {direct}.",
        m=m,
        winograd=winograd,
        direct=direct,
    )


def work_sentence(s: ConvShape) -> str:
    """Returns which tile size executes the fewest FLOPs at a shape, compared with direct convolution."""
    m, best = _best_tile(s)
    fields = {"m": m, "share": units.share(best.flops / s.flops)}
    if best.flops < s.flops:
        return tr("{m}×{m} executes the fewest FLOPs: {share} of those of direct convolution.", **fields)
    return tr("No tile size saves FLOPs here: even {m}×{m} executes {share} of those of direct convolution.", **fields)


def work_details(s: ConvShape) -> str:
    """Returns the transforms' share of the FLOPs and of the bytes, and how often each transform is used."""
    m, best = _best_tile(s)
    return " ".join(
        (
            tr(
                "The transforms are {share} of the FLOPs of {m}×{m}.",
                m=m,
                share=units.share(best.transforms / best.flops),
            ),
            tr(
                "They execute {transforms} FLOP per byte that they move, the products {products}.",
                transforms=units.ratio(best.transforms / best.moved),
                products=units.ratio(best.product / (best.U + best.V + best.Z)),
            ),
            tr("With few channels and filters, memory bandwidth limits the speed."),
        )
    )


def work_chart(s: ConvShape, tokens: Tokens) -> Figure:
    """Returns the FLOPs of direct convolution and of each tile size in steps: a bar each, of products and transforms."""
    import plotly.graph_objects as go

    works = {tr("direct"): (s.flops, 0)}
    works |= {tr(NAMES[m]): (work(s, m).product, work(s, m).transforms) for m in TILES}
    titles, figure = list(works), go.Figure()
    for part, (name, role) in enumerate(((tr("products"), "output"), (tr("transforms"), "workspace"))):
        values = [parts[part] for parts in works.values()]
        figure.add_bar(
            x=values,
            y=titles,
            orientation="h",
            marker={"color": tokens[role]},
            width=0.6,
            customdata=[units.count(value) for value in values],
            hovertemplate=tr("%{y}, {name}: %{customdata} FLOPs, predicted", name=name) + "<extra></extra>",
        )
    for title, parts in works.items():
        text = f"{units.count(sum(parts))} · {units.share(sum(parts) / s.flops)}"
        figure.add_annotation(
            x=1,
            xref="paper",
            y=title,
            text=text,
            showarrow=False,
            xanchor="left",
            xshift=8,
            font={"color": tokens["ink"], "size": 13},
        )
    bars.lay_out(figure, WORK_PX, tokens)
    figure.update_xaxes(visible=False, fixedrange=True)
    figure.update_yaxes(autorange="reversed", fixedrange=True, automargin=True, showgrid=False, ticklabelstandoff=8)
    return figure.update_layout(margin={"l": 0, "r": 120, "t": 4, "b": 4})


# -- measured ----------------------------------------------------------------------------------------
@cache
def errors(C: int) -> dict[str, dict[int, float]]:
    """Returns the relative L2 error against float64, by stored type and by m. It is measured on 4 filters' 24 x
    24 outputs over C maps of seeded normal numbers. Transforms, sums and outputs are computed in float32. x,
    w, transformed values, sums and outputs are rounded to the stored type. The reference has the same rounded
    x and w. inf if a number overflows the type."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, C, SIDE + R - 1, SIDE + R - 1)), rng.normal(size=(FILTERS, C, R, R))
    found: dict[str, dict[int, float]] = {}
    for name, dtype in STORED.items():
        rounded_x, rounded_w = (a.astype(dtype).astype(np.float32) for a in (x, w))
        exact = _direct(rounded_x.astype(np.float64), rounded_w.astype(np.float64))
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow of FP16 becomes inf in the result
            results = {
                m: _winograd(rounded_x, rounded_w, m, dtype) if m else _direct(rounded_x, rounded_w) for m in MEASURED
            }
            computed = {m: result.astype(dtype) for m, result in results.items()}
        found[name] = {m: _error(y, exact) for m, y in computed.items()}
    return found


def _error(y: np.ndarray, exact: np.ndarray) -> float:
    return float(relative_error(y.astype(np.float64), exact)) if np.isfinite(y).all() else np.inf


def _direct(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Returns [K, P, Q] as one product of matrices, in the type of x."""
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (R, R), (1, 2))  # C, P, Q, R, R
    columns = np.ascontiguousarray(windows.transpose(0, 3, 4, 1, 2)).reshape(-1, SIDE * SIDE)
    return (w.reshape(len(w), -1) @ columns).reshape(-1, SIDE, SIDE)


def _winograd(x: np.ndarray, w: np.ndarray, m: int, dtype) -> np.ndarray:
    """Returns [K, P, Q] by F(m x m, 3 x 3) in float32. Each array that the nonfused kernel stores is rounded to
    `dtype`."""
    AT, G, BT = winograd_matrices.derive(m, R).arrays("float32")
    T2, down = positions(m), SIDE // m

    def stored(a: np.ndarray) -> np.ndarray:
        return a.astype(dtype).astype(np.float32)

    U = stored(transform_2d(G, w)).reshape(T2, *w.shape[:2])  # T*T, K, C
    tiles = input_tiles(x, m, (0, 0), (SIDE, SIDE))[0]
    V = stored(transform_2d(BT, tiles)).reshape(T2, x.shape[1], -1)  # T*T, C, tiles
    z = stored(U @ V).reshape(*BT.shape, len(w), down, down)
    return output_maps(transform_2d(AT, np.moveaxis(z, (0, 1), (-2, -1))), (len(w),), SIDE, SIDE)


# -- recorded ----------------------------------------------------------------------------------------
def recorded(s: ConvShape) -> list[tuple[int, str, Mapping]]:
    """Returns (m, rung, row) of each kernel with a known tile size, recorded on a GPU at this shape: one row for
    each m."""
    found: dict[tuple[str, int], Mapping] = {}
    for row in records.recordings("conv"):
        if row["rung"] in RUNGS and row["shape"] == s.params():
            m = RUNGS[row["rung"]]
            found.setdefault((row["rung"], row["tiles"]["M"] if m is None else m), row)
    return [(m, rung, row) for (rung, m), row in found.items()]


# -- the figure --------------------------------------------------------------------------------------
def error_chart(
    measured: Mapping[str, Mapping[int, float]], rows: Sequence[tuple[int, str, Mapping]], tokens: Tokens
) -> Figure:
    """Returns the error over the tile size on a logarithmic axis, one line per stored type; recorded rows as
    diamonds."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for (name, by_tile), role, dash in zip(measured.items(), ("input", "workspace"), ("solid", "dash"), strict=True):
        finite = {tr(NAMES[m]): e for m, e in by_tile.items() if 0 < e < np.inf}
        figure.add_scatter(
            x=list(finite),
            y=list(finite.values()),
            mode="lines+markers",
            line={"color": tokens[role], "width": 2, "dash": dash},
            marker={"size": 8},
            hovertemplate=tr("{name}, %{x}: %{y:.2e}, measured", name=name) + "<extra></extra>",
        )
        if finite:
            first = next(iter(finite))
            figure.add_annotation(
                x=first,
                y=np.log10(finite[first]),
                text=name,
                showarrow=False,
                yanchor="bottom",
                yshift=9,
                font={"size": 13, "color": tokens[role]},
            )
    if rows:
        figure.add_scatter(
            x=[tr(NAMES[m]) for m, _, _ in rows],
            y=[row["error"] for _, _, row in rows],
            mode="markers",
            marker={"symbol": "diamond-open", "size": 12, "color": tokens["write"], "line": {"width": 2}},
            customdata=[[rung.partition("/")[2], row["device"]] for _, rung, row in rows],
            hovertemplate=tr("%{customdata[0]} on %{customdata[1]}: %{y:.2e}, recorded") + "<extra></extra>",
        )
    axis = {
        "fixedrange": True,
        "linecolor": tokens["line"],
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": 12, "color": tokens["dim"]},
        "title_font": {"size": 12, "color": tokens["dim"]},
    }
    figure.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=list(map(tr, NAMES.values())),
        showgrid=False,
        range=[-0.4, len(NAMES) - 0.4],
        title={"text": tr("outputs per tile"), "standoff": 4},
        **axis,
    )
    figure.update_yaxes(
        type="log",
        dtick=1,
        exponentformat="power",
        gridcolor=tokens["line"],
        title={"text": tr("relative L2 error"), "standoff": 6},
        **axis,
    )
    return figure.update_layout(
        height=HEIGHT,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        margin={"l": 0, "r": 8, "t": 8, "b": 4},
        font={"family": FONT, "color": tokens["ink"], "size": 13},
        hoverlabel={"bgcolor": tokens["panel"], "bordercolor": tokens["line"], "font": {"color": tokens["ink"]}},
    )


def error_sentence(measured: Mapping[str, Mapping[int, float]]) -> str:
    """Returns how the errors of the smallest and the largest tile of a kernel compare with direct convolution."""
    single = measured["FP32"]
    small, large = TILES[0], TILES[-1]
    return tr(
        "In FP32, {small} has {small_ratio}× the error of direct convolution, and {large} has {large_ratio}×.",
        small=tr(NAMES[small]),
        small_ratio=units.ratio(single[small] / single[0]),
        large=tr(NAMES[large]),
        large_ratio=units.ratio(single[large] / single[0]),
    )


def error_caption(C: int, measured: Mapping[str, Mapping[int, float]]) -> str:
    """Returns sentences on the errors: how they grow with the tile, and their size in FP16."""
    single, half = measured["FP32"], measured["FP16"]
    grown = ", ".join(
        f"{tr(NAMES[m])}: {units.ratio(single[m] / single[0])}×" for m in MEASURED[1:] if single[m] < np.inf
    )
    sentences = [
        trn(
            "FP32, {n} channel: errors relative to direct convolution ({direct}). {grown}.",
            "FP32, {n} channels: errors relative to direct convolution ({direct}). {grown}.",
            C,
            direct=f"{single[0]:.1e}",
            grown=grown,
        )
    ]
    if half[4] < np.inf:
        sentences.append(
            tr(
                "If values are stored in FP16, the error of 4×4 is {error}, {ratio}× that of direct convolution.",
                error=f"{half[4]:.1e}",
                ratio=units.ratio(half[4] / half[0]),
            )
        )
    if overflowed := [tr(NAMES[m]) for m in MEASURED if half[m] == np.inf]:
        sentences.append(tr("FP16 overflows for {tiles}: no point is drawn.", tiles=", ".join(overflowed)))
    return " ".join(sentences)
