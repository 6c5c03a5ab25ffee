"""Random inputs of attention that make a missing key or a missing cap visible."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from kernels.model.revealing import parts

# Keys of a part: each then has about 1/256 of the weight of a query. In FP16 an error of 2^-9 is allowed.
KEYS = 256


def inputs(s: SelfAttentionShape, random: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Returns Q and K with which each query has most of its weight on the keys whose number is that of the query modulo the
    parts of the keys, with another offset for each head. With a cap, half of the queries have scores of its size."""
    if not {"Q", "K"} <= random.keys():
        return {}
    q, k = (random[name].astype(np.float32) for name in "QK")
    q, k = q.reshape(s.heads, s.N, s.d), k.reshape(-1, s.keys, s.d)
    number = np.arange(s.heads)[:, None] + np.arange(s.keys - s.N, s.keys)
    if (count := parts(s.keys, KEYS)) > 1:
        directions = np.random.default_rng(count).standard_normal((count, s.d), dtype=np.float32)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        length = np.float32(np.sqrt(s.d))
        k += length * directions[np.arange(s.keys) % count]
        q += np.float32((np.log(count) + 2) / (s.factor * length)) * directions[number % count]
    if cap := getattr(s, "softcap", 0):
        q[number % 2 == 0] *= np.float32(max(1, cap / (2 * abs(s.factor) * s.d**0.5)))
    return {name: x.reshape(random[name].shape).astype(random[name].dtype) for name, x in (("Q", q), ("K", k))}
