"""Sentences that compare our fastest kernel with a library and with a copy of the same bytes."""

from __future__ import annotations

from kernels.i18n import tr
from kernels.model.shape import Shape
from kernels.records.statistics import within_ratio
from visuals import units
from visuals.charts.ladder_notes import Row, title


def beside_library(best: Row, library: Row) -> str:
    """Returns how fast the row `best` is beside that of a library."""
    speed = library["median_ms"] / best["median_ms"]
    fields = {"name": title(best), "library": title(library), "ratio": units.ratio(speed), "share": units.share(speed)}
    if within_ratio(best, library):
        return tr("“{name}” is as fast as {library}, within 5 %.", **fields)
    if speed > 1:
        return tr("“{name}” is {ratio}× as fast as {library}.", **fields)
    return tr("“{name}” reaches {share} of the speed of {library}.", **fields)


def beside_copy(s: Shape, best: Row) -> str:
    """Returns how long the row `best` takes beside a copy of the shape's bytes; "" if launch overhead is longer, or if the
    speed of a copy was not measured."""
    ceilings = best.get("ceilings") or {}
    ms = s.bytes / ceilings["copy_bytes_per_s"] * 1e3 if ceilings else 0
    if ms * 1e3 <= ceilings.get("launch_us", 0):
        return ""
    return tr(
        "A copy that moves {bytes} takes {time}. The kernel takes {ratio}× that time.",
        time=units.time_(ms),
        bytes=units.bytes_(s.bytes),
        ratio=units.ratio(best["median_ms"] / ms),
    )
