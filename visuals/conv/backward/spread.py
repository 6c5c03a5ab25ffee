"""The gradient of the output with the holes of the stride: a picture of the links, not of memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from visuals.scene.parts import Group, Read, Tensor, Write
from visuals.scene.scene import Scene


def with_spread(scene: Scene, s: ConvShape, transposed: bool) -> Scene:
    """Returns a scene of dx with dy once more: its values as far apart as the stride sets them, and around them the border that a
    full convolution reads. What a step reads of dy counts as read there too."""
    outputs = np.arange(s.K * s.PQ)
    copy = Write("spread", np.zeros(outputs.size, int), source="dy", index=outputs, cells=spread_cells(s, outputs))
    reads = (Read("spread", r.start, spread_cells(s, np.asarray(r.cells))) for r in scene.reads if r.source == "dy")
    about = tr("the same input, spread by the stride") if transposed else tr("the same gradient, spread by the stride")
    first, *others = scene.groups
    return replace(
        scene,
        tensors=(*scene.tensors, _tensor(s, transposed)),
        groups=(first, Group((("spread",),), "workspace", about), *others),
        writes=(*scene.writes, copy),
        reads=(*scene.reads, *reads),
    )


def spread_cells(s: ConvShape, outputs: np.ndarray) -> np.ndarray:
    """Returns the cells of the spread gradient that hold these outputs (flat in K, P, Q)."""
    k, p, q = np.unravel_index(outputs, (s.K, s.P, s.Q))
    rows, columns = (s.P - 1) * s.u + 1, (s.Q - 1) * s.v + 1
    return (k * rows + p * s.u) * columns + q * s.v


def _tensor(s: ConvShape, transposed: bool) -> Tensor:
    rows, columns = (s.P - 1) * s.u + 1, (s.Q - 1) * s.v + 1
    pad = (
        max(0, s.span_h - 1 - s.pad_h),
        max(0, s.span_w - 1 - s.pad_w),
        max(0, s.H - 1 + s.pad_h - (rows - 1)),
        max(0, s.W - 1 + s.pad_w - (columns - 1)),
    )
    title = tr("input, spread") if transposed else tr("gradient of the output, spread")
    note = tr("not in memory; the stride leaves holes")
    return Tensor(
        "spread", "spread", title, "workspace", s.K, rows, columns, pad=pad, note=note, plane_name=tr("filter")
    )
