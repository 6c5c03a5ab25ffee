"""The recorded times of the works on a processor: kernels/records/offload.json, a list of records.

A record has device, date and works {key: rows of kernels.offload.cpu.times}. Sizes that it lacks were not measured.
The file is from an idle machine: cpu.times with Budget(samples=61, seconds=2.0, min_samples=15, warm_up_s=0.05).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kernels

FILE = Path(kernels.__file__).parent / "records" / "offload.json"
Record = Mapping[str, Any]


@cache
def records() -> tuple[Record, ...]:
    """Returns all records; none if nothing was recorded."""
    return tuple(json.loads(FILE.read_text("utf-8"))) if FILE.exists() else ()


def newest() -> Record | None:
    """Returns the newest record, or None."""
    return max(records(), key=lambda record: record["date"], default=None)
