"""The result of a run and its measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np

from kernels.model.row import Row
from kernels.model.rung import Cost
from kernels.model.shape import Shape


class Stage(TypedDict):
    """A moment of a program: its name, and the bytes of each role."""

    at: str
    input: int
    output: int
    workspace: int


@dataclass(frozen=True)
class Memory:
    """Bytes that a program took as allocated: the maximum of each role, the maximum of all together, and the timeline:
    each stage's name ("at") and its bytes by role at its moment with the most."""

    input: int
    output: int
    workspace: int
    peak: int
    timeline: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """Time and memory of one program on one device: `samples_ms` in the order taken."""

    samples_ms: tuple[float, ...]
    mode: str  # "cold" or "hot"
    memory: Memory
    device: str
    parts_ms: tuple[tuple[str, float], ...] = ()  # median of each step, timed in separate runs
    conditions: Row = field(default_factory=dict)  # driver, clocks, versions, ceilings ...
    copies_ms: Mapping[str, float] | None = None  # inputs in (h2d), output back (d2h): medians; n

    def _quantile(self, q: float) -> float:
        return float(np.quantile(self.samples_ms, q))

    @property
    def n(self) -> int:
        return len(self.samples_ms)

    @property
    def peak_bytes(self) -> int:
        return self.memory.peak

    @property
    def input_bytes(self) -> int:
        return self.memory.input

    @property
    def output_bytes(self) -> int:
        return self.memory.output

    @property
    def workspace_bytes(self) -> int:
        return self.memory.workspace

    @property
    def median_ms(self) -> float:
        return self._quantile(0.5)

    @property
    def p20_ms(self) -> float:
        return self._quantile(0.2)

    @property
    def p80_ms(self) -> float:
        return self._quantile(0.8)

    def to_json(self) -> dict:
        return {
            "median_ms": self.median_ms,
            "p20_ms": self.p20_ms,
            "p80_ms": self.p80_ms,
            "n": self.n,
            "peak_bytes": self.peak_bytes,
            "workspace_bytes": self.workspace_bytes,
            "device": self.device,
            "mode": self.mode,
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "parts_ms": [{"step": name, "median_ms": ms} for name, ms in self.parts_ms],
            "timeline": [dict(stage) for stage in self.memory.timeline],
            "copies_ms": dict(self.copies_ms) if self.copies_ms else None,
        }


@dataclass(frozen=True)
class Result:
    rung: str
    engine: str
    shape: Shape
    tiles: Mapping[str, int]
    outputs: Mapping[str, np.ndarray]  # by buffer name
    error: float  # relative L2 error against the float64 reference: of several outputs the largest
    measurement: Measurement | None
    predicted: Cost
    counters: Any = None  # the emulator's Counters and BlockTraces: an engine knows results, not the reverse
    trace: Any = None

    @property
    def counted(self) -> Any:
        """Returns the counters. ValueError if there are none, as of an engine that counts nothing."""
        if self.counters is None:
            raise ValueError(f"{self.rung} was not counted")
        return self.counters

    @property
    def timed(self) -> Measurement:
        """Returns the measurement. ValueError if there is none, as of an engine that measures nothing."""
        if self.measurement is None:
            raise ValueError(f"{self.rung} was not timed")
        return self.measurement

    @property
    def output(self) -> np.ndarray:
        """Returns the first output."""
        return next(iter(self.outputs.values()))

    def to_json(self) -> dict:
        counted = {"counters": self.counters.to_json()} if self.counters else {}
        return counted | {
            "rung": self.rung,
            "engine": self.engine,
            "shape": self.shape.params(),
            "tiles": dict(self.tiles),
            "error": self.error,
            "measurement": self.measurement.to_json() if self.measurement else None,
            "predicted": {
                "flops": self.predicted.executed_flops,
                "bytes": self.predicted.moved_bytes,
                "workspace_bytes": self.predicted.workspace_bytes,
            },
        }
