"""What a press on Run does without a GPU: at which shape, with what, and how long it takes at least."""

from __future__ import annotations

import streamlit as st

from kernels.engines import cpu
from kernels.i18n import tr
from kernels.jobs.job import seconds
from kernels.jobs.worker import DEADLINE_S
from kernels.machine.timing import Budget
from kernels.model.row import Row
from kernels.model.rung import Rung
from pages.parts import why
from pages.parts.run_settings import RunSettings
from visuals import units

RUNS = 1 + Budget().min_samples  # of each kernel, at least: one is verified, the others are timed
SHORT_FLOPS = 2 * 10**9  # a processor of any age computes these RUNS times while the samples are taken


def refusal(settings: RunSettings) -> str:
    """Returns why a press on Run would measure nothing; "" if it measures a kernel."""
    if not settings.runs():
        return _why_none(settings)
    least = least_seconds(settings)
    if settings.engine == "cpu" and least > DEADLINE_S:
        return tr(
            "Run ends after {limit}. This processor needs {time} or more for this shape.",
            limit=units.time_(DEADLINE_S * 1e3),
            time=_rough(least),
        )
    return ""


def _why_none(settings: RunSettings) -> str:
    reasons = settings.refusals()
    why_not = reasons.get(settings.tiles_rung) or next(iter(reasons.values()), "")
    if not why_not:
        return tr("No kernel can run here on the {engine} engine at this shape.", engine=settings.engine)
    return tr("Nothing can run here without a GPU: {why}.", why=why_not)


def plan(settings: RunSettings, shape: str) -> str:
    """Returns what a press computes, with what and for how long; "" on a GPU. `shape`: in words."""
    if settings.engine != "cpu" or not settings.runs():
        return ""
    what = tr("Run computes {shape} with NumPy on this processor.", shape=shape)
    return f"{what} {_how_long(settings)}"


def is_long(settings: RunSettings) -> bool:
    """Returns whether a press takes longer than the time in which samples are taken."""
    return settings.engine == "cpu" and least_seconds(settings) > seconds()


def _how_long(settings: RunSettings) -> str:
    if not is_long(settings):
        return tr("It takes samples for about {time}.", time=units.time_(seconds() * 1e3))
    time = _rough(least_seconds(settings))
    return tr("It takes {time} or more at the rates measured on this processor.", time=time)


def _rough(seconds: float) -> str:
    """Returns seconds with two digits: an estimate has no more."""
    return units.time_(float(f"{seconds * 1e3:.2g}"))


def least_seconds(settings: RunSettings) -> float:
    """Returns the seconds that the runs of each kernel take at least. A kernel that was timed here, at any shape, has that
    rate; another one the rate of a matrix product, which few exceed."""
    flops = [(rung, why.cost(settings, rung).executed_flops or settings.shape.flops) for rung in settings.runs()]
    if sum(count for _, count in flops) < SHORT_FLOPS:
        return 0.0
    return sum(RUNS * count / (_timed_rate(rung) or cpu.product_rate()) for rung, count in flops)


def _timed_rate(rung: Rung) -> float | None:
    """Returns the FLOP/s of a kernel in the last run of this reader on this processor; None if it was not in it."""
    ran = st.session_state.get("ran")
    row: Row | None = ran and ran.rows.get(rung.name)
    if not row or row["engine"] != "cpu" or not row["flops"]:
        return None
    return row["flops"] / row["median_ms"] * 1e3
