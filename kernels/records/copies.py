"""The recorded time of a copy on a device by its bytes: kernels/records/copies.json, a list of rows.

benchmarks.copies writes it. A row has device, date, bytes (read and written together), median_ms, p20_ms, p80_ms and n. The
copies are cold and timed as the kernels are. So the bytes that a copy leaves in the L2 cache count as little as a kernel's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from kernels.model.row import Row

FILE = Path(__file__).parent / "copies.json"


@cache
def rows(device: str) -> tuple[Row, ...]:
    """Returns the rows of a device by their bytes; none if nothing was recorded there."""
    found = json.loads(FILE.read_text("utf-8")) if FILE.exists() else []
    return tuple(sorted((row for row in found if row["device"] == device), key=lambda row: row["bytes"]))


def copy_ms(nbytes: float, device: str) -> float | None:
    """Returns the recorded ms of a copy that reads and writes so many bytes together, or None."""
    return interpolated(nbytes, rows(device))


def interpolated(nbytes: float, found: Sequence[Row]) -> float | None:
    """Returns the ms of a copy between those of the two nearest rows, which are sorted by bytes. None if no smaller or no
    larger copy was timed."""
    if not found or not found[0]["bytes"] <= nbytes <= found[-1]["bytes"]:
        return None
    sizes, times = ([row[key] for row in found] for key in ("bytes", "median_ms"))
    return float(np.interp(nbytes, sizes, times))
