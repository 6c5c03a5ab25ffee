"""The recorded measurements of training steps: kernels/records/training.json, a list of rows.

benchmarks.training writes it. A row has network, batch, optimizer, memory (every, parts), device, date and any of: node_us
(microseconds of each node, by name), the keys of WHOLE (microseconds of a whole step), peak_bytes, held (bytes of each node by role, by name), and curve: {"loss": [[step,
loss]], "accuracy": [[step, share]], "steps_per_epoch": n}. What a row lacks is not recorded yet.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import kernels
from kernels.i18n import mark
from kernels.model.row import Row
from kernels.training.step import PLAIN, Memory

FILE = Path(kernels.__file__).parent / "records" / "training.json"
WHOLE = {  # a whole step, by its name in a row
    "one_by_one_us": mark("launches one by one"),
    "graph_us": mark("one CUDA graph"),
    "eager_us": mark("PyTorch eager"),
    "compile_us": mark("torch.compile"),
    "compile_graph_us": mark("torch.compile, one graph"),
}


@cache
def rows() -> tuple[Row, ...]:
    """Returns all rows; none if nothing was recorded."""
    return tuple(json.loads(FILE.read_text("utf-8"))) if FILE.exists() else ()


def recorded(network: str, batch: int, optimizer: str, memory: Memory = PLAIN) -> Row | None:
    """Returns the newest row of a step, or None."""
    same = [
        row
        for row in rows()
        if (row["network"], row["batch"], row["optimizer"]) == (network, batch, optimizer)
        and Memory(**row["memory"]) == memory
    ]
    return max(same, key=lambda row: row.get("date", ""), default=None)


def curve(network: str) -> Row | None:
    """Returns the newest row of a network that has a curve, whatever its batch, or None."""
    found = [row for row in rows() if row["network"] == network and row.get("curve")]
    return max(found, key=lambda row: row.get("date", ""), default=None)


def node_ms(row: Row | None) -> dict[str, float]:
    """Returns the recorded ms of each node; {} without a record."""
    return {name: us / 1e3 for name, us in ((row or {}).get("node_us") or {}).items()}
