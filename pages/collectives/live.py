"""The run of a collective on the GPUs of this machine: the rows of the job that the strip's button starts."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.engines.cuda import devices
from kernels.i18n import tr
from kernels.jobs.exchange import Exchange
from pages.parts.one_run import Row, one_run

KEY = "exchange"  # of the run in the session


def measured(request: Exchange) -> dict[str, Row]:
    """Returns the rows of a collective that ran here, by algorithm; {} before it ran."""
    return {row["algorithm"]: row for row in one_run(KEY).rows(request) if "median_ms" in row}


def emulated(request: Exchange) -> str:
    """Returns what emulated GPUs did, in a sentence; "" before they ran."""
    counted = [row for row in one_run(KEY).rows(request) if "same_bytes" in row]
    return _sentence(counted) if counted else ""


def _sentence(rows: Sequence[Row]) -> str:
    if all(row["equal"] and row["same_bytes"] for row in rows):
        return tr(
            "Emulated: {n} kernels on {gpus} GPUs. All sums are right and equal bit for bit, all bytes as scheduled.",
            n=len(rows),
            gpus=rows[0]["ranks"],
        )
    wrong = next(row["algorithm"] for row in rows if not (row["equal"] and row["same_bytes"]))
    return tr("Emulated: {kernel} differs from its schedule.", kernel=wrong)


def error(request: Exchange) -> str:
    """Returns why the run of a collective gave nothing, or which algorithms were refused; "" if all ran."""
    run = one_run(KEY)
    refused = [f"{row['algorithm']}: {row['refused']}" for row in run.rows(request) if "refused" in row]
    return run.error_of(request) or "; ".join(refused)


def refusal(ranks: int) -> str:
    """Returns why this machine cannot run over so many GPUs; "" if it can."""
    return devices.refusal(ranks)
