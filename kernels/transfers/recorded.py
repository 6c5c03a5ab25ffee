"""The recorded transfers: kernels/records/transfers.json, which benchmarks.transfers writes; a list of records.

A record has device, driver, date, n and any of: copies {way: [{"bytes", "ms", "p20_ms", "p80_ms", "n"}]}, costs (ms of calls),
scenarios and large {key: {"settings", "total_ms", "p20_ms", "p80_ms", "n", "timeline", "ops", "error"}}, pieces [{"n", "total_ms",
...}] of the batch of scenarios, logs {key: {"after", "log"}}, and failed {what: text}. What a record lacks was not measured.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import kernels
from kernels.model.row import Row as Record
from kernels.transfers.operations import Timeline

FILE = Path(kernels.__file__).parent / "records" / "transfers.json"


@cache
def records() -> tuple[Record, ...]:
    """Returns all records; none if nothing was recorded."""
    return tuple(json.loads(FILE.read_text("utf-8"))) if FILE.exists() else ()


def newest() -> Record | None:
    """Returns the newest record, or None."""
    return max(records(), key=lambda record: record["date"], default=None)


def scenario(key: str, rows: int, n: int) -> Record | None:
    """Returns what the newest record has of a scenario at exactly this size, or None."""
    record = newest() or {}
    for part in ("scenarios", "large"):
        found = record.get(part, {}).get(key)
        if found and found["settings"] == {"rows": rows, "n": n} and "timeline" in found:
            return found
    return None


def timeline(found: Record) -> Timeline:
    return Timeline.from_json(found["timeline"])


def curve() -> list[Record]:
    """Returns the recorded totals over the number of pieces, [] if there are none."""
    return list((newest() or {}).get("pieces", ()))


def pieces_ms(rows: int) -> dict[int, float]:
    """Returns the recorded total of a batch by its number of pieces, {} if none was recorded with so many rows. Each number has
    one total: that of its scenario, which has a timeline, else that of the curve."""
    record = newest() or {}
    scenarios = [found for part in ("scenarios", "large") if (found := record.get(part, {}).get("pieces"))]
    curve_rows = record.get("scenarios", {}).get("pieces", {}).get("settings", {}).get("rows")
    found = {p["n"]: p["total_ms"] for p in curve() if rows == curve_rows}
    of_scenarios = {s["settings"]["n"]: s["total_ms"] for s in scenarios if s["settings"]["rows"] == rows}
    return dict(sorted((found | of_scenarios).items()))
