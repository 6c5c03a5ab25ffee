"""Deliberate faults, and which tests catch them: what a suite that becomes smaller must not lose.

A file NAME.toml holds the faults of a topic or a shared part:

    [[fault]]
    name = "sum-not-rescaled"
    why = "Online softmax keeps its old sum when the maximum grows."
    file = "kernels/softmax/cuda/03_online.cu"
    old = "a.l * expf(a.m - shift) +"
    new = "a.l +"
    tests = ["tests/kernels/softmax/test_ladder.py"]

`old` occurs once in `file`. `tests` are the files or folders that concern the fault, as pytest or node takes them.
`python -m tests.faults` applies each (run.py).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Fault:
    topic: str
    name: str
    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"

    def applied(self, text: str) -> str:
        """Returns the faulty text of its file. ValueError if `old` is not there exactly once."""
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"{self}: the original code is in {self.file} {times} times, not once")
        return text.replace(self.old, self.new)


def read(path: Path) -> list[Fault]:
    """Returns the faults of a file. TypeError names a field that is missing or unknown."""
    rows = tomllib.loads(path.read_text())["fault"]
    return [Fault(topic=path.stem, **row | {"tests": tuple(row["tests"])}) for row in rows]


def all_faults() -> list[Fault]:
    return [fault for path in sorted(HERE.glob("*.toml")) for fault in read(path)]
