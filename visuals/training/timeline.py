"""The memory of a step over its launches as small stacked columns by role: predicted, and measured beside it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np

from kernels.i18n import tr
from visuals import units
from visuals.training.evidence import StepEvidence
from visuals.training.plan import FAINT, HUES, NAMES, ROLES

WIDTH, HEIGHT = 300, 60


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
    columns = "".join(
        f'<path class="kt-{HUES[role]}{" kt-faint" * (role in FAINT)}" d="{path}"/>'
        for role, path in _paths(sizes, most)
    )
    return (
        f'<figure class="kt-timeline"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{about}">'
        f"{columns}</svg><figcaption>{about}</figcaption></figure>"
    )  # fmt: skip


def _paths(sizes: np.ndarray, most: int) -> Iterator[tuple[str, str]]:
    """Yields each role with the outline of its columns, stacked on the roles before it."""
    below = np.cumsum(np.pad(sizes, ((0, 0), (1, 0))), axis=1)
    edges = np.linspace(0, WIDTH, len(sizes) + 1)
    for k, role in enumerate(ROLES):
        bars = zip(edges, edges[1:], below[:, k], below[:, k + 1], strict=False)
        yield role, "".join(_bar(*bar, most) for bar in bars if bar[3] > bar[2])


def _bar(left: float, right: float, low: int, high: int, most: int) -> str:
    bottom, top = (HEIGHT * (1 - v / most) for v in (low, high))
    return f"M{left:.1f} {bottom:.1f}V{top:.1f}H{right:.1f}V{bottom:.1f}Z"


__all__ = ["html", "measured", "peak", "rows"]
