"""The card with the matrices of any F(m, r): derived, their savings, and the identity checked on random numbers."""

from __future__ import annotations

from fractions import Fraction
from html import escape

import numpy as np
import streamlit as st

from kernels.conv import winograd_matrices
from kernels.i18n import decimal, tr, trn
from kernels.machine.processor import device_name
from pages.parts.controls import option
from pages.parts.query import chosen
from pages.parts.text import card_title, conclusion, details, together
from visuals import units

PART = "matrices"  # the name of the page part
OUTPUTS, TAPS = (2, 1, 3, 4, 5, 6), (3, 1, 2, 4, 5)  # the default first
PAIRS = 1000  # random pairs of filter and input
EXACT_PAIRS = 20  # pairs in exact fractions: few, because fractions are slow
ROLES = {"AT": ("Aᵀ", "output"), "G": ("G", "filter"), "BT": ("Bᵀ", "input")}


def section() -> None:
    with st.container(key="card_winograd_matrices", border=True):
        st.html(card_title(tr("The matrices of F(m, r), derived")))
        with st.container(key="chips_matrices", horizontal=True):
            with st.popover(tr("m outputs: {m}", m=chosen("Fm", labels(OUTPUTS))), key="outputs_chooser"):
                m = int(option("Fm", labels(OUTPUTS)))
            with st.popover(tr("r taps: {r}", r=chosen("Fr", labels(TAPS))), key="taps_chooser"):
                r = int(option("Fr", labels(TAPS)))
            seed = st.session_state.setdefault("winograd_numbers", 0)
            if st.button(tr("Other random numbers"), key="other_numbers"):
                seed = st.session_state["winograd_numbers"] = seed + 1
        found = differences(m, r, seed)
        together(transforms(m, r), identity_check(found), details(derivation(m, r), check_details(found)))


def labels(choices: tuple[int, ...]) -> list[str]:
    return [str(c) for c in choices]


# -- derived -----------------------------------------------------------------------------------------
def transforms(m: int, r: int) -> str:
    """Returns HTML: the multiplications in one dimension, and the three matrices."""
    t = winograd_matrices.derive(m, r)
    saved = tr(
        "F({m}, {r}), with m outputs and r taps, needs {m} + {r} − 1 = {n} multiplications instead of {m} · {r} = {direct}.",
        m=m,
        r=r,
        direct=m * r,
        n=t.n,
    )
    tables = "".join(matrix(name, getattr(t, name)) for name in ROLES)
    badge = units.badge("predicted", tr("from the entries of the matrices"))
    return f'{conclusion(saved)}<p class="kt-figures">{badge}</p><div class="kt-matrices">{tables}</div>'


def derivation(m: int, r: int) -> str:
    """Returns HTML: the derivation of the matrices from points, and the operations that they need."""
    t = winograd_matrices.derive(m, r)
    points = [fraction(a) for a in winograd_matrices.POINTS[: t.n - 1]] + ["∞"]
    counts = [winograd_matrices.operations(X) for X in (t.BT, t.G, t.AT)]
    per_output, direct = t.n**2 / m**2, r**2
    operations = ", ".join(
        f"{name} {c.additions} + {c.multiplications}" for name, c in zip(("Bᵀd", "Gg", "Aᵀz"), counts, strict=True)
    )
    origin = (
        trn(
            "The matrices use {n} point: {points} (∞ means the leading coefficient).",
            "The matrices use {n} points: {points} (∞ means the leading coefficient).",
            t.n,
            points=f'<span class="kt-math">{", ".join(points)}</span>',
        ),
        tr("The values at these points determine a polynomial of degree {degree}.", degree=t.n - 1),
        tr("Each row of G and each column of Aᵀ has the powers of one point."),
        tr("G also has the divisors of the interpolation."),
        tr("Each row of Bᵀ has the coefficients of a polynomial that is zero at all other points."),
    )
    cost = (
        tr("Multiplications per output: direct {direct}, Winograd {winograd}.", direct=r, winograd=_number(t.n / m)),
        tr(
            "In two dimensions: direct {direct}, Winograd {winograd}, a ratio of {ratio}.",
            direct=direct,
            winograd=_number(per_output),
            ratio=_number(direct / per_output),
        ),
        tr("Transforms in one dimension, additions + multiplications: {operations}.", operations=operations),
    )
    return f'<p class="kt-why">{" ".join(origin)}</p><p class="kt-why">{" ".join(cost)}</p>'


def _number(value: float) -> str:
    return f"{value:.3g}"


def fraction(value: Fraction) -> str:
    """Returns an exact fraction with a minus sign, such as −5/4."""
    return str(value).replace("-", "−")


def matrix(name: str, X: winograd_matrices.Matrix) -> str:
    symbol, role = ROLES[name]
    rows = "".join(f"<tr>{''.join(f'<td{_zero_class(e)}>{fraction(e)}</td>' for e in row)}</tr>" for row in X)
    return (
        f'<figure><figcaption><b class="kt-{role}">{symbol}</b> {len(X)} × {len(X[0])}</figcaption>'
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{symbol}"><table class="kt-matrix kt-math">{rows}</table></div></figure>'
    )


def _zero_class(entry: Fraction) -> str:
    return ' class="kt-zero"' if not entry else ""


# -- checked -----------------------------------------------------------------------------------------
@st.cache_data(max_entries=128, show_spinner=False)
def differences(m: int, r: int, seed: int) -> tuple[int, float, float]:
    """Returns the largest |A^T[(G g) * (B^T d)] - direct| over random pairs: exact, in float64 and in float32.

    Exact: EXACT_PAIRS pairs of whole numbers -9 .. 9 in fractions. The others: PAIRS pairs of normal numbers, each
    compared with direct in float64."""
    t, rng = winograd_matrices.derive(m, r), np.random.default_rng([seed, m, r])
    integers = [(rng.integers(-9, 10, r), rng.integers(-9, 10, t.n)) for _ in range(EXACT_PAIRS)]
    exact = max(
        abs(winograd_matrices.correlate(t, _exact(g), _exact(d)) - _direct(_exact(g), _exact(d))).max()
        for g, d in integers
    )
    g, d = rng.normal(size=(PAIRS, r)), rng.normal(size=(PAIRS, t.n))

    def error(dtype: str) -> float:
        AT, G, BT = t.arrays(dtype)
        taps, inputs = g.astype(dtype), d.astype(dtype)
        y = ((taps @ G.T) * (inputs @ BT.T)) @ AT.T
        windows = np.lib.stride_tricks.sliding_window_view(inputs.astype("f8"), r, axis=1)
        return float(np.abs(y - np.einsum("pir,pr->pi", windows, taps.astype("f8"))).max())

    return exact, error("float64"), error("float32")


def _exact(values: np.ndarray) -> np.ndarray:
    return np.array([Fraction(int(v)) for v in values], object)


def _direct(g: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Returns y[i] = sum_k g[k] d[i + k]."""
    return np.array([sum(g[k] * d[i + k] for k in range(len(g))) for i in range(len(d) - len(g) + 1)])


def identity_check(found: tuple[int, float, float]) -> str:
    """Returns HTML: the largest differences between Winograd and direct convolution on random numbers."""
    exact, _, single = found
    text = tr(
        "Largest difference from direct convolution on random numbers: <b>{exact}</b> in exact fractions, <b>{single}</b> in "
        "FP32.",
        exact=escape(fraction(Fraction(exact))),
        single=f"{single:.1e}",
    )
    badge = units.badge("measured", tr("{device}, this processor, NumPy", device=device_name()))
    return f'<p class="kt-why">{text} {badge}</p>'


def check_details(found: tuple[int, float, float]) -> str:
    """Returns HTML: what the identity check computes, and its difference in FP64."""
    text = tr(
        "The check compares {winograd} with direct convolution. It uses {exact_pairs} random pairs of whole numbers for the "
        "fractions, and {pairs} random pairs of normal numbers for FP64 and FP32. The largest difference in FP64 is {double}.",
        winograd='<span class="kt-math">Aᵀ[(G g) ∘ (Bᵀ d)]</span>',
        exact_pairs=EXACT_PAIRS,
        pairs=decimal(f"{PAIRS:,}"),
        double=f"{found[1]:.1e}",
    )
    return f'<p class="kt-why">{text}</p>'
