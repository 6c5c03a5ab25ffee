"""Random inputs of the norms that make a missing eps or a missing pixel visible."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.model.revealing import concentrate_sums
from kernels.norm.shape import MapsShape, RowsShape

SMALL = np.float32(2.0**-8)  # of a standard deviation: its square, 1.5e-5, is of the size of eps
Arrays = Mapping[str, np.ndarray]


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


def variances(s: object, random: Arrays) -> Arrays:
    """Returns every buffer of variances (var, var_2 ...) with a small one in every other channel. The gamma there is as small
    as the deviation, so that an output in FP16 stays finite."""
    found = {name: a for name, a in random.items() if name.partition("_")[0] in ("var", "gamma")}
    for name, a in found.items():
        a[::2] *= SMALL * SMALL if name.startswith("var") else SMALL
    return found
