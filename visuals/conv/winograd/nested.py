"""F(m x m, 3 x 3) of one tile and one filter, row by row: each transform is two products of matrices, one after the other.

In one dimension u = G g. In two dimensions G is applied to the columns, then to the rows: (G g) Gᵀ. So are Bᵀ and Aᵀ.
The order of the sums is that of transform_2d in kernels/conv/cuda/winograd.cuh. Numbers are computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.winograd_cpu import R
from kernels.i18n import mark, tr
from visuals.conv.winograd.derive import filter_of, tile_of
from visuals.conv.winograd.halves import SECOND_HALF, TRANSFORM, listing
from visuals.conv.winograd.part import Numbers, Part, sum_of
from visuals.scene.parts import Group, MatMul, Reading, Source, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

ORDER = mark("row by row")
ORDER_NOTE = mark(
    "The stage shows one tile, one filter and one channel, a row of a matrix at a time. On the GPU a thread computes a whole "
    "transform, and many threads run at once."
)
GG, U, BD, V, Z, AZ, Y = range(7)  # kinds of steps
_FILES = (  # as in halves.listing
    ("07_winograd_filter.cu", "transform_2d(G, g, u)", "}"),
    TRANSFORM,
    ("08_winograd_fused.cu", "transform = [&", "};"),
    ("08_winograd_fused.cu", "for (int i = 0; i < 8; ++i)", "}"),
    ("08_winograd_fused.cu", "transform_2d(AT, z, out)", "}"),
)
HALVES = "X[i][k] * d[k][j]", SECOND_HALF  # of transform_2d
_MARKS = (*HALVES, *HALVES, "sum[e][i][j] +=", *HALVES)  # by kind of step


@dataclass(frozen=True)
class Values:
    """float64 arrays of one tile d [T, T] and one filter g [3, 3], by the names of the tensors."""

    d: np.ndarray
    g: np.ndarray
    m: int

    def arrays(self) -> dict[str, np.ndarray]:
        AT, G, BT = winograd_matrices.derive(self.m, R).arrays("float64")
        Gg, Bd = G @ self.g, BT @ self.d
        U, V = Gg @ G.T, Bd @ BT.T
        AZ = AT @ (U * V)
        return {
            "d": self.d,
            "g": self.g,
            "AT": AT,
            "G": G,
            "BT": BT,
            "Gg": Gg,
            "U": U,
            "Bd": Bd,
            "V": V,
            "Z": U * V,
            "AZ": AZ,
            "y": AZ @ AT.T,
        }


def nested_scene(part: Part, n: Numbers) -> Scene:
    """Returns the scene of the first tile and filter 0, in channel 0."""
    return scene_of(part.m, tile_of(part, n), filter_of(part, n))


def scene_of(m: int, d: np.ndarray, g: np.ndarray) -> Scene:
    """Returns the scene for a tile d [m + 2, m + 2] and a filter g [3, 3]."""
    arrays, r = Values(np.asarray(d, float), np.asarray(g, float), m).arrays(), Recorder()
    _record(r, arrays, m)
    return Scene(
        key=f"winograd-nested {m}",
        title=f"F({m}×{m}, {R}×{R})",
        tensors=_tensors(arrays),
        groups=(Group((("G", "g", "Gg", "U", "Z"), ("BT", "d", "Bd", "V"), ("AT", "AZ", "y"))),),
        steps=r.steps,
        step_name=tr("row"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        captions=r.captions(_templates(m)),
        matmuls=(MatMul("G", "g", "Gg"), MatMul("BT", "d", "Bd"), MatMul("AT", "Z", "AZ")),
        sums=_sums(m),
        readings=tuple(
            Reading(title, r.so_far(name), "predicted")
            for name, title in (
                ("product", tr("multiplications, U · V")),
                ("additions", tr("additions, transforms")),
                ("multiplications", tr("multiplications, transforms")),
            )
        ),
        source=_source(np.array(r.kinds)),
    )


def _tensors(arrays: dict[str, np.ndarray]) -> tuple[Tensor, ...]:
    titles = (
        ("G", "G", "G", "filter", True),
        ("g", "g", "g", "filter", True),
        ("Gg", "Gg", "Gg", "filter", False),
        ("U", "U", "U = Gg Gᵀ", "filter", False),
        ("BT", "Bᵀ", "Bᵀ", "input", True),
        ("d", "d", "d", "input", True),
        ("Bd", "Bᵀd", "Bᵀd", "input", False),
        ("V", "V", "V = Bᵀd B", "input", False),
        ("AT", "Aᵀ", "Aᵀ", "output", True),
        ("Z", "Z", "Z = U · V", "output", False),
        ("AZ", "AᵀZ", "AᵀZ", "output", False),
        ("y", "y", "y = AᵀZ A", "output", False),
    )
    return tuple(
        Tensor(name, symbol, title, role, 1, *arrays[name].shape, values=arrays[name].ravel() if known else None)
        for name, symbol, title, role, known in titles
    )


def _sums(m: int) -> tuple:
    """Returns the second half of each transform, and the products: out[i, j] = sum over k of half[i, k] * X[j, k]."""
    T, k = m + R - 1, np.arange

    def second(out: str, half: str, X: str, rows: int, inner: int):
        entries = [(i * inner + k(inner), j * inner + k(inner)) for i in range(rows) for j in range(rows)]
        return sum_of(out, half, entries, X)

    return (
        second("U", "Gg", "G", T, R),
        second("V", "Bd", "BT", T, T),
        second("y", "AZ", "AT", m, T),
        sum_of("Z", "V", [(np.array([i]), np.array([i])) for i in range(T * T)], "U"),
    )


# -- steps ---------------------------------------------------------------------------------------------
def _record(r: Recorder, arrays: dict[str, np.ndarray], m: int) -> None:
    T = m + R - 1

    def rows(kind: int, name: str, X: str = "", half: int = 1) -> None:
        """Adds a step for each row of a matrix. The first half of a transform uses one row of X for all columns, the
        second all rows of X for one row."""
        values = arrays[name]
        for i, row in enumerate(values):
            counts = _operations(arrays[X], i if half == 1 else None, len(row)) if X else {"product": len(row)}
            r.step(kind, i, len(row), float(row[0]), *counts.values(), **counts)
            r.put(name, row, i * len(row) + np.arange(len(row)))

    rows(GG, "Gg", "G")
    rows(U, "U", "G", half=2)
    rows(BD, "Bd", "BT")
    rows(V, "V", "BT", half=2)
    rows(Z, "Z")
    rows(AZ, "AZ", "AT")
    rows(Y, "y", "AT", half=2)
    assert r.steps == 5 * T + 2 * m


def _operations(X: np.ndarray, row: int | None, columns: int) -> dict[str, int]:
    """Returns the operations of one row of the result: zeros are free, factors of 1 and -1 need no multiplication."""
    used = X[[row]] if row is not None else X
    times = columns if row is not None else 1
    terms = np.count_nonzero(used, axis=1)
    multiplied = int(np.count_nonzero(used[np.abs(used) != 1]))
    return {"additions": int((terms - 1).sum()) * times, "multiplications": multiplied * times}


def _templates(m: int) -> tuple[str, ...]:
    direct, winograd = winograd_matrices.multiplications_2d(m, R)
    cost = tr("{3} additions, {4} multiplications.")
    first = "[{name}]({role})"
    named = {
        name: first.format(name=title, role=role)
        for name, title, role in (
            ("g", "g", "filter"),
            ("Gg", "Gg", "filter"),
            ("U", "U", "filter"),
            ("d", "d", "input"),
            ("Bd", "Bᵀd", "input"),
            ("V", "V", "input"),
            ("Z", "Z", "output"),
            ("AZ", "AᵀZ", "output"),
            ("y", "y", "output"),
        )
    }
    half = mark("Row {0} of {out}: row {0} of {X} is multiplied by each column of {right}. {cost}")
    whole = mark("Row {0} of {out}: row {0} of {left} is multiplied by each row of {X}, as in one dimension. {cost}")
    begin = {"cost": cost}
    return (
        tr(half, out=named["Gg"], X="G", right=named["g"], **begin),
        tr(whole, out=named["U"], X="G", left=named["Gg"], **begin),
        tr(half, out=named["Bd"], X="Bᵀ", right=named["d"], **begin),
        tr(whole, out=named["V"], X="Bᵀ", left=named["Bd"], **begin),
        tr(
            "Row {0} of {Z}: each value of {U} is multiplied by the value of {V} at the same place. {1} multiplications, {all} in "
            "all; direct convolution takes {direct}.",
            all=winograd,
            direct=direct,
            **named,
        ),
        tr(half, out=named["AZ"], X="Aᵀ", right=named["Z"], **begin),
        tr(whole, out=named["y"], X="Aᵀ", left=named["AZ"], **begin),
    )


def _source(kind: np.ndarray) -> Source:
    """Returns transform_2d and the lines that call it and that multiply, each under its file's name."""
    return listing("winograd.cuh", _FILES, _MARKS, kind)
