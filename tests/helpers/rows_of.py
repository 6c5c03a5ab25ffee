"""Rows in the form of a measurement, for tests of storing, comparing and linking rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.conv.presets import CONV_PRESETS

SHAPE = CONV_PRESETS["toy"].shape.params()


def a_row(seed: int = 0, samples=None, **changes) -> dict[str, Any]:
    """Returns a row that passes every check; each `seed` gives another row."""
    if samples is None:
        samples = np.random.default_rng(seed).normal(1.0, 0.02, 20)
    samples = [float(f"{ms:.5g}") for ms in samples]
    low, median, high = (float(q) for q in np.quantile(samples, (0.2, 0.5, 0.8)))
    return {
        "rung": "conv/direct",
        "shape": dict(SHAPE),
        "tiles": {"BLOCK": 256},
        "engine": "cpu",
        "mode": "cold",
        "median_ms": median,
        "p20_ms": low,
        "p80_ms": high,
        "n": len(samples),
        "samples_ms": samples,
        "parts_ms": {},
        "peak_bytes": 616,
        "input_bytes": 328,
        "output_bytes": 288,
        "workspace_bytes": 0,
        "flops": 1296,
        "error": 1e-7,
        "device": "a processor",
        "numpy": "2.4",
        "date": "2026-01-02",
        "time": f"2026-01-02T03:{seed // 60 % 60:02}:{seed % 60:02}Z",
        "commit": "unknown",
        "kernels": "0" * 16,
        "a_field_of_later": {"timeline": [1, 2.5, None]},
    } | changes


CEILINGS = {
    "copy_bytes_per_s": 1e12,
    "copy_n": 20,
    "copy": "device to device, 1024 MiB",
    "fp32_flops_per_s": 1e13,
    "fp32_n": 19,
    "fp32": "FMA kernel",
    "launch_us": 2.0,
    "launch_n": 18,
    "launch": "empty kernel, queued",
    "cache_bytes": 2**25,
    "device": "a processor",
    "date": "2026-01-02",
}
COPIES = {"h2d_pageable": 4.0, "d2h_pageable": 2.0, "h2d_pinned": 1.0, "d2h_pinned": 0.5, "n": 11}
TIMELINE = [
    {"at": "inputs", "input": 328, "output": 0, "workspace": 0},
    {"at": "output", "input": 328, "output": 288, "workspace": 0},
    {"at": "direct", "input": 328, "output": 288, "workspace": 0},
]


def a_full_row(seed: int = 0, **changes) -> dict[str, Any]:
    """Returns a row with the fields that older rows lack. It has 4 FLOP per byte; the ridge is at 10."""
    fields = {"timeline": TIMELINE, "copies_ms": COPIES, "ceilings": CEILINGS, "predicted_bytes": 324}
    return a_row(seed, **(fields | changes))
