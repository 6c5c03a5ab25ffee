"""The recorded measurements of parallel steps: kernels/records/parallel.json, a list of rows.

benchmarks.parallel writes it. A row has network, way, gpus, batch, micro, optimizer, bucket_bytes, overlap, device, topology, date
and any of: step_us (microseconds of a step), samples (of it), error (the text of a failure). What a row lacks is not recorded
yet.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import kernels
from kernels.model.row import Row
from kernels.parallel import times
from kernels.parallel.plan import PIPELINES, Plan

FILE = Path(kernels.__file__).parent / "records" / "parallel.json"


@cache
def all_rows() -> tuple[Row, ...]:
    """Returns the rows of all machines; none if nothing was recorded."""
    return tuple(json.loads(FILE.read_text("utf-8"))) if FILE.exists() else ()


def rows(device: str = "") -> tuple[Row, ...]:
    """Returns the rows of one kind of GPU, of the newest run by default: times of two machines are not compared."""
    found = all_rows()
    newest = max(found, key=lambda row: row["date"], default={})  # of one day the last run is first in the file
    return tuple(row for row in found if row["device"] == (device or newest["device"]))


def devices() -> list[str]:
    """Returns the kinds of GPU that were recorded."""
    return list(dict.fromkeys(row["device"] for row in all_rows()))


def recorded(plan: Plan, overlap: bool = True, device: str = "") -> Row | None:
    """Returns the newest row of a step, of the same buckets if one has them, or None. It is of one kind of GPU (`device`), by
    default of the kind whose kernels the prediction is made from, else of the newest run that has the step."""
    if device:
        return _of_device(plan, overlap, device)
    order = dict.fromkeys([times.device(plan.network), *devices()])
    return next(filter(None, (_of_device(plan, overlap, each) for each in order)), None)


def _of_device(plan: Plan, overlap: bool, device: str) -> Row | None:
    step = plan.network, plan.way, plan.gpus, plan.batch, plan.optimizer, overlap
    keys = "network", "way", "gpus", "batch", "optimizer", "overlap"
    same = [row for row in rows(device) if row.get("step_us") and tuple(row.get(key) for key in keys) == step]
    if plan.way in PIPELINES:
        same = [row for row in same if row["micro"] == plan.micro]
    exact = [row for row in same if row.get("bucket_bytes") == plan.bucket_bytes]
    return max(exact or same, key=lambda row: row.get("date", ""), default=None)
