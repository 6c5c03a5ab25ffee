"""The memory of a step over its launches as small stacked columns by role: predicted, and measured beside it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np

from kernels.i18n import tr
from visuals import units
from visuals.training.evidence import StepEvidence
from visuals.training.plan import FAINT, HUES, NAMES, ROLES


def measured(evidence: StepEvidence) -> np.ndarray:
    """Returns the measured bytes during each launch of the plan by role: int64 [launches, roles]; [0, roles] without any.
    Each launch of a node has the bytes of the node."""
    p, held = evidence.plan, evidence.held
    rows = [held[p.node(n).name] for n in range(len(p.parts))] if held else []
    return np.array(rows, np.int64).reshape(-1, len(ROLES))


def peak(evidence: StepEvidence) -> tuple[int, str]:
    """Returns the most measured bytes, and the node during which they exist. ValueError without a measurement."""
    node = max(evidence.held, key=lambda name: sum(evidence.held[name]))
    return sum(evidence.held[node]), node


def rows(evidence: StepEvidence) -> list[tuple[str, str, str]]:
    """Returns for each role its name, and the most bytes during any launch: predicted and measured."""
    found = measured(evidence)
    return [
        (tr(NAMES[role]), units.bytes_(evidence.plan.largest(role)), units.bytes_(int(found[:, k].max())))
        for k, role in enumerate(ROLES)
        if evidence.plan.largest(role) or found[:, k].any()
    ]


def html(evidence: StepEvidence, source: str) -> str:
    """Returns both timelines at one scale, as trusted HTML; "" without a measurement. `source`: where it was measured."""
    found, planned = measured(evidence), evidence.plan.memory
    if not len(found):
        return ""
    most = int(max(found.sum(axis=1).max(), planned.sum(axis=1).max()))
    titles = tr("predicted, kernels of a GPU"), source
    return "".join(_figure(sizes, most, title) for sizes, title in zip((planned, found), titles, strict=True))


def _figure(sizes: np.ndarray, most: int, title: str) -> str:
    top = units.bytes_(int(sizes.sum(axis=1).max()))
    about = escape(tr("{title}: at most {bytes}", title=title, bytes=top))
    columns = "".join(f"<span>{''.join(_column(row, most))}</span>" for row in sizes)
    return (
        f'<figure class="kt-timeline"><div role="img" aria-label="{about}">{columns}</div>'
        f"<figcaption>{about}</figcaption></figure>"
    )


def _column(row: np.ndarray, most: int) -> Iterator[str]:
    """Yields the parts of one launch from the top down: each role's share of the scale in percent."""
    for role, nbytes in zip(reversed(ROLES), reversed(row.tolist()), strict=True):
        if nbytes:
            faint = " kt-faint" if role in FAINT else ""
            yield f'<i style="height:{100 * nbytes / most:.2f}%" class="kt-{HUES[role]}{faint}"></i>'


__all__ = ["html", "measured", "peak", "rows"]
