"""The recorded measurements of training steps: kernels/records/training.json, a list of rows.

A row has network, batch, optimizer, device, date and any of: node_us (microseconds of each node, by name), one_by_one_us,
graph_us, eager_us and compile_us (a whole step: our launches one by one, as one CUDA graph, PyTorch eager, torch.compile),
and curve: {"loss": [[step, loss]], "accuracy": [[step, share]], "steps_per_epoch": n}. What a row lacks is not recorded yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kernels
from kernels.i18n import mark

FILE = Path(kernels.__file__).parent / "records" / "training.json"
WHOLE = {  # a whole step, by its name in a row
    "one_by_one_us": mark("launches one by one"),
    "graph_us": mark("one CUDA graph"),
    "eager_us": mark("PyTorch eager"),
    "compile_us": mark("torch.compile"),
}
Row = Mapping[str, Any]


@cache
def rows() -> tuple[Row, ...]:
    """Returns all rows; none if nothing was recorded."""
    return tuple(json.loads(FILE.read_text("utf-8"))) if FILE.exists() else ()


def recorded(network: str, batch: int, optimizer: str) -> Row | None:
    """Returns the newest row of a step, or None."""
    same = [
        row
        for row in rows()
        if (row["network"], row["batch"], row.get("optimizer", "sgd")) == (network, batch, optimizer)
    ]
    return max(same, key=lambda row: row.get("date", ""), default=None)


def curve(network: str) -> Row | None:
    """Returns the newest row of a network that has a curve, whatever its batch, or None."""
    found = [row for row in rows() if row["network"] == network and row.get("curve")]
    return max(found, key=lambda row: row.get("date", ""), default=None)


def node_ms(row: Row | None) -> dict[str, float]:
    """Returns the recorded ms of each node; {} without a record."""
    return {name: us / 1e3 for name, us in ((row or {}).get("node_us") or {}).items()}
