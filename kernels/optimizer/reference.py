"""float64 references of an optimiser's step: for each array that it overwrites (result, error scale). The gaps between
the tensors must keep their values: their scale is 0."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.model.verify import Reference
from kernels.optimizer.shape import AdamShape, OptimizerShape, SgdShape

TOLERANCE = 2.0**-20  # a few roundings of float32, as a fraction of the scale
TINY = 2.0**-126  # smaller results may become 0


def in_tensors(s: OptimizerShape) -> np.ndarray:
    """Returns bool [extent]: whether an element of the allocation belongs to a tensor."""
    inside = np.zeros(s.extent, bool)
    for first, count in s.tensors:
        inside[first : first + count] = True
    return inside


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(np.float64) for array in arrays]


def _by_name(s: OptimizerShape, before: dict[str, np.ndarray], after: dict[str, Reference]) -> dict[str, Reference]:
    """Returns the references with the gaps as before."""
    inside = in_tensors(s)
    return {
        name: (np.where(inside, result, before[name]), np.where(inside, scale, 0.0))
        for name, (result, scale) in after.items()
    }


def sgd(s: SgdShape, w: np.ndarray, g: np.ndarray, v: np.ndarray, chunks: np.ndarray) -> dict[str, Reference]:
    before = {"w": w, "v": v}
    w, g, v = _wide(w, g, v)
    v_new = s.momentum * v + (g + s.weight_decay * w)
    v_scale = s.momentum * np.abs(v) + np.abs(g) + s.weight_decay * np.abs(w)
    after = {"w": (w - s.lr * v_new, np.abs(w) + s.lr * v_scale), "v": (v_new, v_scale)}
    return _by_name(s, before, after)


def adam(
    s: AdamShape, w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, chunks: np.ndarray
) -> dict[str, Reference]:
    """Returns the references of w, m and v.

    The scale of w is that of its last subtraction, and the error that v passes on by the root: to first order half of its
    relative error. It exceeds a rounding only where weight_decay * w cancels the gradient.
    """
    before = {"w": w, "m": m, "v": v}
    w, g, m, v = _wide(w, g, m, v)
    correct_m, correct_v = s.corrections
    g_scale = np.abs(g) + s.weight_decay * np.abs(w)
    g = g + s.weight_decay * w
    m_new = s.beta1 * m + (1 - s.beta1) * g
    m_scale = s.beta1 * np.abs(m) + (1 - s.beta1) * g_scale
    v_new = s.beta2 * v + (1 - s.beta2) * g * g
    v_scale = s.beta2 * v + (1 - s.beta2) * g_scale**2
    root = np.sqrt(v_new / correct_v)
    below = root + s.eps
    rate = s.lr / correct_m
    v_error = np.divide(v_scale, v_new, out=np.zeros_like(v), where=v_new > 0)  # relative, in units of the tolerance
    w_scale = np.abs(w) + rate * (m_scale + np.abs(m_new) * v_error * root / below) / below
    tiny = TINY / TOLERANCE
    after = {
        "w": (w - rate * m_new / below, w_scale + tiny),
        "m": (m_new, m_scale + tiny),
        "v": (v_new, v_scale + tiny),
    }
    return _by_name(s, before, after)


def fused_adam_scale(s: AdamShape, tiles: object, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the error scales of PyTorch's fused Adam, which computes 1 - beta and 1 - beta^t in float32.

    They are wrong by 2^-24, which is more the closer beta is to 1: relative to 0.001 it is 6e-5. A wrong beta is t times as
    wrong in beta^t.
    """
    expected = adam(s, **inputs)
    w, g = (inputs[name].astype(np.float64) for name in "wg")
    g = np.abs(g) + s.weight_decay * np.abs(w)
    update = np.abs(expected["w"][0] - w)
    added = {
        "m": g,
        "v": g**2,
        "w": update
        * sum(
            (1 + s.step * beta**s.step) / correction
            for beta, correction in zip((s.beta1, s.beta2), s.corrections, strict=True)
        ),
    }
    return {name: scale + (scale > 0) * added[name] * 2.0**-22 / TOLERANCE for name, (_, scale) in expected.items()}
