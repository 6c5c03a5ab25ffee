"""The chooser: the matrices of any F(m, r), derived, with what they save and the identity tried on random numbers."""

from __future__ import annotations

from fractions import Fraction
from html import escape

import numpy as np
import streamlit as st

from kernels.conv import winograd_matrices
from kernels.machine.processor import device_name
from pages.parts.controls import option
from pages.parts.query import chosen
from visuals.charts import units

PART = "matrices"  # of the page
OUTPUTS, TAPS = (2, 1, 3, 4, 5, 6), (3, 1, 2, 4, 5)  # the usual first
PAIRS = 1000  # of filter and input, random
WHOLE = 20  # pairs in exact fractions, which are slow
ROLES = {"AT": ("Aᵀ", "output"), "G": ("G", "filter"), "BT": ("Bᵀ", "input")}


def section() -> None:
    with st.container(key="card_winograd_matrices", border=True):
        st.html('<h2 class="kt-card">The matrices of F(m, r), derived</h2>')
        with st.container(key="chips_matrices", horizontal=True):
            with st.popover(f"m outputs: {chosen('Fm', list(map(str, OUTPUTS)))}", key="outputs_chooser"):
                m = int(option("Fm", sorted_first(OUTPUTS)))
            with st.popover(f"r taps: {chosen('Fr', list(map(str, TAPS)))}", key="taps_chooser"):
                r = int(option("Fr", sorted_first(TAPS)))
            again = st.session_state.setdefault("winograd_numbers", 0)
            if st.button("Other random numbers", key="other_numbers"):
                again = st.session_state["winograd_numbers"] = again + 1
        st.html(told(m, r))
        st.html(tried(m, r, again))


def sorted_first(choices: tuple[int, ...]) -> list[str]:
    return [str(c) for c in choices]


# -- derived -----------------------------------------------------------------------------------------
def told(m: int, r: int) -> str:
    """HTML: points, matrices, multiplications."""
    t = winograd_matrices.derive(m, r)
    points = [fraction(a) for a in winograd_matrices.POINTS[: t.n - 1]] + ["∞"]
    one = [winograd_matrices.operations(X) for X in (t.BT, t.G, t.AT)]
    two, direct = t.n**2 / m**2, r**2
    tables = "".join(matrix(name, getattr(t, name)) for name in ROLES)
    return (
        f'<p class="kt-why">F({m}, {r}): {m} output{"s" * (m > 1)} of {r} tap{"s" * (r > 1)} from {t.n} input{"s" * (t.n > 1)} by '
        f"<b>{t.n}</b> multiplication{'s' * (t.n > 1)} instead of {m * r}. A polynomial of degree {t.n - 1} is known from its values at {t.n} "
        f'points: <span class="kt-math">{", ".join(points)}</span> (at ∞ its leading coefficient).</p>'
        f'<div class="kt-matrices">{tables}</div>'
        f'<p class="kt-why">Multiplications an output: direct {r}, Winograd {_number(t.n / m)}; in two dimensions direct {direct}, '
        f"Winograd {_number(two)}, {_number(direct / two)} times fewer. One dimension’s transforms: "
        + ", ".join(f"{name} {c.additions} additions, {c.multiplications} multiplications" for name, c in zip(("Bᵀd", "Gg", "Aᵀz"), one, strict=True))
        + f'. {units.badge("predicted", "from the entries of the matrices")}</p>'
    )  # fmt: skip


def _number(value: float) -> str:
    return f"{value:.3g}"


def fraction(value: Fraction) -> str:
    """−5/4: exact, with a minus sign."""
    return str(value).replace("-", "−")


def matrix(name: str, X: winograd_matrices.Matrix) -> str:
    symbol, role = ROLES[name]
    rows = "".join(f"<tr>{''.join(f'<td{_dim(e)}>{fraction(e)}</td>' for e in row)}</tr>" for row in X)
    return (
        f'<figure><figcaption><b class="kt-{role}">{symbol}</b> {len(X)} × {len(X[0])}</figcaption>'
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{symbol}"><table class="kt-matrix kt-math">{rows}</table></div></figure>'
    )


def _dim(entry: Fraction) -> str:
    return ' class="kt-zero"' if not entry else ""


# -- tried -------------------------------------------------------------------------------------------
@st.cache_data(max_entries=128, show_spinner=False)
def differences(m: int, r: int, seed: int) -> tuple[int, float, float]:
    """The largest |A^T[(G g) * (B^T d)] - direct| over PAIRS random pairs: of whole numbers -9 .. 9 in exact fractions
    (WHOLE pairs), of normal numbers in float64 and in float32, each against direct in float64."""
    t, rng = winograd_matrices.derive(m, r), np.random.default_rng([seed, m, r])
    whole = [(rng.integers(-9, 10, r), rng.integers(-9, 10, t.n)) for _ in range(WHOLE)]
    exact = max(
        abs(winograd_matrices.correlate(t, _exact(g), _exact(d)) - _direct(_exact(g), _exact(d))).max()
        for g, d in whole
    )
    g, d = rng.normal(size=(PAIRS, r)), rng.normal(size=(PAIRS, t.n))

    def off(dtype: str) -> float:
        AT, G, BT = t.arrays(dtype)
        one, other = g.astype(dtype), d.astype(dtype)
        y = ((one @ G.T) * (other @ BT.T)) @ AT.T
        windows = np.lib.stride_tricks.sliding_window_view(other.astype("f8"), r, axis=1)
        return float(np.abs(y - np.einsum("pir,pr->pi", windows, one.astype("f8"))).max())

    return exact, off("float64"), off("float32")


def _exact(values: np.ndarray) -> np.ndarray:
    return np.array([Fraction(int(v)) for v in values], object)


def _direct(g: np.ndarray, d: np.ndarray) -> np.ndarray:
    """y[i] = sum_k g[k] d[i + k]."""
    return np.array([sum(g[k] * d[i + k] for k in range(len(g))) for i in range(len(d) - len(g) + 1)])


def tried(m: int, r: int, seed: int) -> str:
    """HTML: the identity, and how far it is off on random numbers."""
    exact, double, single = differences(m, r, seed)
    badge = units.badge("measured", f"{device_name()}, this processor, NumPy")
    return (
        '<p class="kt-why"><span class="kt-math">Aᵀ[(G g) ∘ (Bᵀ d)] − direct</span>, largest difference: '
        f"<b>{escape(fraction(Fraction(exact)))}</b> in exact fractions ({WHOLE} random pairs of whole numbers), <b>{double:.1e}</b> in FP64, <b>{single:.1e}</b> in FP32 "
        f"({PAIRS:,} random pairs of filters and inputs, normal). {badge}</p>"
    )
