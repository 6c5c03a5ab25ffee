"""F(m, 3) in one dimension by hand: direct, then the rows of Aᵀ, G and Bᵀ one by one, then products and outputs.

For any weights p of the outputs, p0·y0 + p1·y1 + ... is a sum of the inputs, whose factors are the coefficients of the
product of two polynomials, p(x)·g(x). That product is known from its values at m + 2 points. (The transposition
principle of kernels/conv/winograd_matrices.py, in numbers.) Inputs and taps are one row of a tile and of a filter.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from kernels import sources
from kernels.conv.winograd_cpu import R
from kernels.i18n import mark, tr
from visuals.conv.winograd.part import sum_of
from visuals.conv.winograd.points import Point, listed, points_of, polynomial, symbolic, total
from visuals.scene.parts import Group, MatMul, Reading, Source, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene, number

ORDER = mark("by hand")
ORDER_NOTE = mark(
    "This order is an explanation in one dimension. The kernels compute none of its rows: they have the finished matrices as "
    "constants, and use them in two dimensions."
)
FILE = "conv/winograd_matrices.cuh"


def derive_scene(m: int, tile: np.ndarray, taps: np.ndarray, flip: bool) -> Scene:
    """Returns the scene of one row of a tile [m + 2, m + 2] and one row of the taps [3, 3] of a filter, as it is stored."""
    return scene_of(m, *rows_of(m, tile, taps[::-1, ::-1] if flip else taps))


def rows_of(m: int, tile: np.ndarray, taps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (d [m + 2], g [3]): a row of the tile and the row of the filter on it. Of the filter's rows it is the first with
    the fewest zeros among its taps and in both transforms."""
    found = [Rows(m, tile[r], taps[r]) for r in range(R)]
    best = max(found, key=lambda one: sum(np.count_nonzero(a) for a in (one.g, one.u, one.v)))
    return best.d, best.g


class Rows:
    """The numbers of F(m, 3) for inputs d [m + 2] and taps g [3], in float64, by the matrices of `points_of`."""

    def __init__(self, m: int, d: np.ndarray, g: np.ndarray):
        self.m, self.n, self.points = m, m + R - 1, points_of(m)
        self.d, self.g = np.asarray(d, float), np.asarray(g, float)
        self.AT = _array(p.column_of_AT for p in self.points).T
        self.G = _array(p.row_of_G for p in self.points)
        self.BT = _array(p.row_of_BT for p in self.points)
        self.u, self.v = self.G @ self.g, self.BT @ self.d
        self.products = self.u * self.v
        self.y = self.AT @ self.products
        self.direct = np.array([self.d[i : i + R] @ self.g for i in range(m)])


def _array(rows) -> np.ndarray:
    return np.array(list(rows), object).astype(float)


def scene_of(m: int, d: np.ndarray, g: np.ndarray) -> Scene:
    """Returns the scene for inputs d [m + 2] and taps g [3]."""
    rows, r = Rows(m, d, g), Recorder()
    steps = _steps(r, rows)
    captions = [text for text, _ in steps]
    r.kinds = list(range(len(captions)))  # a caption for each step
    return Scene(
        key=f"winograd-derive {m}",
        title=f"F({m}, {R})",
        tensors=_tensors(rows),
        groups=(Group((("d", "g", "S", "yd", "G", "u"), ("BT", "v", "p", "AT", "y"))),),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=r.captions(captions),
        matmuls=(MatMul("S", "d", "yd"), MatMul("G", "g", "u"), MatMul("BT", "d", "v"), MatMul("AT", "p", "y")),
        sums=(sum_of("p", "v", [(np.array([i]), np.array([i])) for i in range(rows.n)], "u"),),
        readings=tuple(
            Reading(title, r.so_far(name), "predicted")
            for name, title in (("direct", tr("multiplications, direct")), ("product", tr("multiplications, u · v")))
        ),
        source=_source(m, [line for _, line in steps]),
    )


def _tensors(rows: Rows) -> tuple[Tensor, ...]:
    m, n = rows.m, rows.n
    return (
        Tensor("d", "d", "d", "input", 1, n, 1, rows.d, note=tr("inputs")),
        Tensor("g", "g", "g", "filter", 1, R, 1, rows.g, note=tr("taps")),
        Tensor("S", "S", "S", "filter", 1, m, n),
        Tensor("yd", "y", "y = Sd", "output", 1, m, 1),
        Tensor("G", "G", "G", "filter", 1, n, R),
        Tensor("u", "u", "u = Gg", "filter", 1, n, 1),
        Tensor("BT", "Bᵀ", "Bᵀ", "input", 1, n, n),
        Tensor("v", "v", "v = Bᵀd", "input", 1, n, 1),
        Tensor("p", "p", "p = u · v", "output", 1, n, 1),
        Tensor("AT", "Aᵀ", "Aᵀ", "output", 1, m, n),
        Tensor("y", "y", "y = Aᵀp", "output", 1, m, 1),
    )


# -- steps ---------------------------------------------------------------------------------------------
def _steps(r: Recorder, rows: Rows) -> list[tuple[str, tuple[str, int] | None]]:
    """Adds the steps. Returns the caption of each, and the matrix and its row in the kernels' file (None: none)."""
    told: list[tuple[str, tuple[str, int] | None]] = []
    m, n = rows.m, rows.n

    def step(text: str, line: tuple[str, int] | None = None, **counts: int) -> None:
        r.step(0, 0, **counts)
        told.append((text, line))

    for i in range(m):
        step(_direct(rows, i), direct=R)
        inside = np.arange(n) - i
        r.copy("S", "g", np.where((inside >= 0) & (inside < R), inside, -1), i * n + np.arange(n))
        r.put("yd", rows.direct[i], np.array([i]))
    step(_idea(rows))
    r.look("S", np.arange(m * n))
    for k, point in enumerate(rows.points):
        step(_weights(point, k), ("AT", -1))
        r.put("AT", rows.AT[:, k], np.arange(m) * n + k)
    for k, point in enumerate(rows.points):
        step(_taps(point, k, rows), ("G", k))
        r.put("G", rows.G[k], k * R + np.arange(R))
        r.put("u", rows.u[k], np.array([k]))
    for k, point in enumerate(rows.points):
        step(_inputs(point, k, rows), ("BT", k))
        r.put("BT", rows.BT[k], k * n + np.arange(n))
        r.put("v", rows.v[k], np.array([k]))
    for k in range(n):
        step(_product(rows, k), product=1)
        r.put("p", rows.products[k], np.array([k]))
    for i in range(m):
        step(_output(rows, i), ("AT", i))
        r.put("y", rows.y[i], np.array([i]))
    return told


# -- captions ------------------------------------------------------------------------------------------
def _direct(rows: Rows, i: int) -> str:
    return tr(
        "Direct: row {i} of [S](filter) has the taps at this output. [y{i}](output) = {terms} = {value} takes {n} multiplications, "
        "{total} so far.",
        i=i,
        terms=" + ".join(f"d{i + k}·g{k}" for k in range(R)),
        value=number(rows.direct[i]),
        n=R,
        total=R * (i + 1),
    )


def _idea(rows: Rows) -> str:
    m, n = rows.m, rows.n
    outputs = " + ".join(f"w{i}·y{i}" for i in range(min(m, 2))) + " + …" * (m > 2)
    weights = symbolic("w", 2) + " + …" * (m > 2)
    return " ".join(
        (
            tr("The trick: give the outputs any weights, {outputs}.", outputs=outputs),
            tr(
                "Then the factor of each input is a coefficient of the product ({weights})·({taps}).",
                weights=weights,
                taps=symbolic("g", R),
            ),
            tr(
                "This product has {n} coefficients, so its values at {n} points are enough: {points}.",
                n=n,
                points=", ".join(point.name for point in rows.points),
            ),
        )
    )


def _weights(point: Point, k: int) -> str:
    column = point.column_of_AT
    fields = {
        "at": point.name,
        "k": k,
        "value": total(column, [f"w{i}" for i in range(len(column))]),
        "factors": listed(column),
    }
    if point.at is None:
        return tr(
            "Point ∞ means the coefficient of the highest power. For the weights that is {value}. Its factors {factors} are "
            "column {k} of [Aᵀ](output).",
            **fields,
        )
    return tr(
        "Point x = {at}: there the weights’ polynomial is {value}. Its factors {factors} are column {k} of [Aᵀ](output).",
        **fields,
    )


def _taps(point: Point, k: int, rows: Rows) -> str:
    row = point.row_of_G
    fields = {
        "at": point.name,
        "k": k,
        "value": total([factor * point.N for factor in row], [f"g{i}" for i in range(R)]),
        "N": listed([point.N]),
        "factors": listed(row),
        "u": number(rows.u[k]),
    }
    if point.at is None:
        first = tr("Point ∞: the highest coefficient of the filter’s polynomial is {value}.", **fields)
    else:
        first = tr("Point x = {at}: there the filter’s polynomial is {value}.", **fields)
        if point.N != 1:
            first += " " + tr("It is divided by {N}, the product of the distances to the other points.", **fields)
    return f"{first} " + tr("Row {k} of [G](filter) is {factors}. So [u{k}](filter) = {u}.", **fields)


def _inputs(point: Point, k: int, rows: Rows) -> str:
    row = point.row_of_BT
    fields = {
        "at": point.name,
        "k": k,
        "product": point.factors(),
        "expanded": polynomial(row),
        "N": listed([point.N]),
        "factors": listed(row),
        "sum": total(row, [f"d{i}" for i in range(rows.n)]),
        "v": number(rows.v[k]),
    }
    if point.at is None:
        first = tr("Point ∞: {product} = {expanded} is 0 at every other point.", **fields)
    else:
        first = tr("Point x = {at}: {product} = {expanded} is {N} there and 0 at the other points.", **fields)
    return " ".join(
        [tr("Next, from values back to coefficients (interpolation).")] * (k == 0)
        + [
            first,
            tr("Its coefficients {factors} are row {k} of [Bᵀ](input). So [v{k}](input) = {sum} = {v}.", **fields),
        ]
    )


def _product(rows: Rows, k: int) -> str:
    return tr(
        "Multiplication {i} of {n}: [p{k}](output) = [u{k}](filter) · [v{k}](input) = {u} · {v} = {p}.",
        i=k + 1,
        n=rows.n,
        k=k,
        u=number(rows.u[k]),
        v=factor(rows.v[k]),
        p=number(rows.products[k]),
    )


def factor(value: float) -> str:
    """Returns the second factor of a product: a negative one in parentheses."""
    return f"({number(value)})" if value < 0 else number(value)


def _output(rows: Rows, i: int) -> str:
    row = [Fraction(float(a)) for a in rows.AT[i]]
    text = tr(
        "Row {i} of Aᵀ: [y{i}](output) = {sum} = {value}. Direct convolution gave {direct}.",
        i=i,
        sum=total(row, [f"p{k}" for k in range(rows.n)]),
        value=number(round(rows.y[i], 9)),
        direct=number(rows.direct[i]),
    )
    if i < rows.m - 1:
        return text
    return f"{text} " + tr(
        "{n} multiplications instead of {direct}, and the same outputs.", n=rows.n, direct=R * rows.m
    )


# -- the file with the matrices ------------------------------------------------------------------------
def _source(m: int, rows: list[tuple[str, int] | None]) -> Source:
    """Returns the kernels' matrices of F(m, 3). `rows`, by step: the matrix and its row to light, -1 for the line above
    its rows; None lights the first line."""
    lines = sources.text(FILE).splitlines()
    begin = next(i for i, line in enumerate(lines) if line.endswith(f"if M == {m}"))
    end = next(i for i in range(begin + 1, len(lines)) if lines[i].startswith("#e"))
    place = {name: next(i for i in range(begin, end) if f" {name}[" in lines[i]) + 1 for name in ("AT", "G", "BT")}
    lit = [begin if row is None else place[row[0]] + row[1] for row in rows]
    return Source(FILE.rpartition("/")[2], "\n".join(lines[begin:end]), np.array(lit) + 1, begin + 1)
