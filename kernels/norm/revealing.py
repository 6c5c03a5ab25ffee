"""Random inputs of the norms that make a missing eps or a missing pixel visible."""

from __future__ import annotations

import numpy as np

from kernels.model.revealing import SMALL, Arrays, concentrate_sums
from kernels.norm.shape import MapsShape, RowsShape


def maps(s: MapsShape, random: Arrays) -> Arrays:
    """Returns x with a small standard deviation in every other channel, and each channel's weight on a part of its pixels."""
    found = {name: random[name] for name in ("x", "dy") if name in random}
    for tensor in found.values():
        concentrate_sums(tensor.reshape((s.N, s.C, s.HW) if s.channel_axis == 1 else (s.count, s.C, 1)))
    if "x" in found:
        np.moveaxis(found["x"], s.channel_axis, 0)[::2] *= SMALL
    return found


def rows(s: RowsShape, random: Arrays) -> Arrays:
    """Returns x with a small standard deviation in every other row."""
    if "x" not in random:
        return {}
    random["x"][::2] *= SMALL
    return {"x": random["x"]}
