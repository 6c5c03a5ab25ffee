"""Inputs of the scenes of attention's backward pass: Q, K and V as on the stage of the forward pass, and dO."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from visuals.attention.inputs import KINDS as FORWARD_KINDS
from visuals.attention.inputs import Matrices, qkv

# By name in the URL, with a description. Larger scores than these would leave float32 too few digits for P.
KINDS: Mapping[str, str] = {name: FORWARD_KINDS[name][0] for name in ("whole", "random", "lookup")}


def inputs(s: AttentionBackwardShape, kind: str) -> Matrices:
    """Returns Q, K, V and dO of one of KINDS, float32 [1, 1, N, d], for head 0 of sequence 0. Equal at each call."""
    rng, size = np.random.default_rng(1), (1, 1, s.N, s.d)
    dO = rng.standard_normal(size) if kind == "random" else rng.integers(-2, 3, size)
    return qkv(s, kind) | {"dO": dO.astype(np.float32)}
