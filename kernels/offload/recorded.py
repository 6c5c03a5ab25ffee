"""The recorded times of the works on both sides of one machine: kernels/records/offload.json, a list of records.

A record has device (the processor), gpu, driver, date, and works {key: {"cpu": rows, "gpu": rows}} as kernels.offload.measure
returns them. Sizes that it lacks were not measured. `python -m benchmarks.offload kernels/records/offload.json` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import kernels
from kernels.model.row import Row as Record

FILE = Path(kernels.__file__).parent / "records" / "offload.json"


@cache
def records() -> tuple[Record, ...]:
    """Returns all records; none if nothing was recorded."""
    return tuple(json.loads(FILE.read_text("utf-8"))) if FILE.exists() else ()


def newest() -> Record | None:
    """Returns the newest record, or None."""
    return max(records(), key=lambda record: record["date"], default=None)


def rows(key: str, side: str) -> Sequence[Record]:
    """Returns the rows of a work on a side of the newest record, smallest size first."""
    found = (newest() or {}).get("works", {}).get(key, {}).get(side, ())
    return sorted(found, key=lambda row: row["size"])
