"""Reporting of the benchmarks: command line, seconds passed, JSON files, and tables as text."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")
Row = Mapping[str, Any]


def parser(doc: str) -> argparse.ArgumentParser:
    """Returns a parser whose help begins with the docstring of a benchmark, as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


# -- time --------------------------------------------------------------------------------------------
def stopwatch() -> Callable[[], float]:
    """Returns what returns the seconds since this call."""
    start = time.perf_counter()
    return lambda: time.perf_counter() - start


def in_time(
    items: Iterable[Item], elapsed: Callable[[], float], seconds: float, name: Callable[[Item], str] = str
) -> Iterator[Item]:
    """Yields items until the seconds have passed, and prints the names of those left out."""
    for item in items:
        if elapsed() > seconds:
            print(f"left out for want of time: {name(item)}")
        else:
            yield item


# -- files -------------------------------------------------------------------------------------------
def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


# -- tables ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Column:
    """A column of a table: its title, the format of its values, and a field of the rows or a function of a row."""

    title: str
    format: str  # "" for text, which is aligned to the left
    value: str | Callable[[Row], Any]

    def text(self, row: Row) -> str:
        """Returns the value in a row as text; "" if the row has none."""
        value = row.get(self.value) if isinstance(self.value, str) else self.value(row)
        return "" if value is None else format(value, self.format)

    def aligned(self, text: str, width: int) -> str:
        return text.rjust(width) if self.format else text.ljust(width)


def table(rows: Sequence[Row], columns: Sequence[Column], below: Callable[[Row], str] = lambda row: "") -> str:
    """Returns a table. `below` returns a line that follows a row, "" for none."""
    cells = [[column.text(row) for column in columns] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(len, texts)) for texts in zip(titles, *cells, strict=True)]

    def line(texts: Sequence[str]) -> str:
        return " ".join(map(Column.aligned, columns, texts, widths)).rstrip()

    lines = [line(titles)]
    for row, texts in zip(rows, cells, strict=True):
        lines += filter(None, (line(texts), below(row)))
    return "\n".join(lines)


def tiles_text(tiles: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in tiles.items())


def spread(row: Row) -> float | None:
    """Returns p80 - p20 as a share of the median; None if the row has no times."""
    return (row["p80_ms"] - row["p20_ms"]) / row["median_ms"] if "median_ms" in row else None


def fastest_ms(rows: Iterable[Row], rungs: Collection[str]) -> float | None:
    """Returns the shortest median of some rungs; None if none of them was timed."""
    return min((row["median_ms"] for row in rows if row["rung"] in rungs and "median_ms" in row), default=None)


def speed_relative_to(base_ms: float | None, row: Row) -> float | None:
    """Returns a row's speed divided by that of a median; None if one of both is missing."""
    return base_ms / row["median_ms"] if base_ms and "median_ms" in row else None


RUNG = Column("", "", "rung")
TILES = Column("tiles", "", lambda row: tiles_text(row["tiles"]))
MEDIAN_MS = Column("ms", ".4f", "median_ms")
SPREAD = Column("spread", ".1%", spread)
SAMPLES = Column("n", "d", "n")
TFLOPS = Column("TFLOP/s", ".2f", "tflops")
ERROR = Column("error", ".1e", "error")
REGISTERS = Column("regs", "d", "registers")
LOCAL = Column("local", "d", "local")
PEAK_MB = Column("peak MB", ".1f", lambda row: row["peak_bytes"] / 1e6)
