"""A row as it is stored, and filters of rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernels.model.row import Row
from kernels.records import rows
from kernels.records.jsontext import canonical

HERE, RECORDED = "here", "recorded"  # origins that no import may use
MAX_ORIGIN = 80


@dataclass(frozen=True)
class Entry:
    """A row with its id, its origin and when it was inserted."""

    id: str
    row: Row
    origin: str
    inserted: str = ""


@dataclass(frozen=True)
class Filter:
    """A filter of rows: every field that is not empty must match."""

    rung: str = ""
    engine: str = ""
    device: str = ""
    mode: str = ""
    origin: str = ""
    shape: str = ""  # as rows.matches reads it
    ladder: str = ""  # the part of the rung's name before "/"
    exact_shape: str = ""  # canonical JSON

    def matches(self, row: Row, origin: str) -> bool:
        exact = (self.rung, row["rung"]), (self.engine, row["engine"]), (self.device, row["device"])
        return (
            all(not wanted or wanted == value for wanted, value in (*exact, (self.mode, row["mode"])))
            and (not self.origin or self.origin == origin)
            and (not self.ladder or row["rung"].startswith(f"{self.ladder}/"))
            and (not self.exact_shape or self.exact_shape == canonical(row["shape"]))
            and (not self.shape or rows.matches(self.shape, row["rung"], canonical(row["shape"])))
        )


EVERYTHING = Filter()


def newest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(sorted(entries, key=lambda e: e.id), key=lambda e: rows.measured_at(e.row), reverse=True)


def import_name(origin: str) -> str:
    """Returns a name for an import: short, on one line, different from the app's own origins."""
    line = "".join(c if c.isprintable() else " " for c in origin).strip()[:MAX_ORIGIN]
    line = line.encode("utf-8", "replace").decode()
    return line if line and line not in (HERE, RECORDED) else f"import {line}".strip()
