"""A collective on all GPUs of this machine, as one request to the process that runs kernels.

A GPU that never answers ends the process, not the app: our kernels give up after their patience, a wait for NCCL after a
deadline, and the worker kills the process after its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels.activity import EXCHANGING
from kernels.collectives import gpus as collective_gpus
from kernels.collectives.gpus import NCCL, Gpus
from kernels.collectives.kernels import KERNELS
from kernels.collectives.shape import ALL_REDUCE
from kernels.jobs.job import Rows, packed
from kernels.model.program import RuleError
from kernels.records.row import commit


@dataclass(frozen=True)
class Exchange:
    """A collective over `ranks` GPUs, `elements` float32 each: NCCL's, and for an all-reduce each of our kernels."""

    CACHED: ClassVar[bool] = True

    kind: str
    ranks: int
    elements: int

    @property
    def rungs(self) -> tuple[str]:
        """Returns its name in messages."""
        return (f"{self.kind} over {self.ranks} GPUs",)

    @property
    def shape(self) -> str:
        return f"{self.ranks} arrays of {self.elements:,} elements"

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Returns what it runs."""
        return (*KERNELS, NCCL) if self.kind == ALL_REDUCE else (NCCL,)

    def key(self) -> Hashable:
        """Returns a key that is equal for equal requests."""
        return "exchange", self.kind, self.ranks, self.elements

    def packed(self) -> bytes:
        return packed(self)


def exchange(
    request: Exchange, progress: Callable[[float, str], None], part: Callable[[Any], None] = lambda part: None
) -> Rows:
    """Returns a row for each algorithm, verified on every GPU and timed. A row of one that cannot run has the reason
    ("refused"). RuleError if the GPUs are not there; DevicesHung if they do not answer."""
    gpus = Gpus(request.ranks, request.elements)
    at = {
        "device": gpus.devices.name(0), "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "commit": commit(),
    }  # fmt: skip
    rows = []
    for n, algorithm in enumerate(request.algorithms):
        progress(n / len(request.algorithms), EXCHANGING)
        try:
            row = collective_gpus.measure(gpus, request.kind, algorithm, request.elements)
        except RuleError as error:
            row = {"kind": request.kind, "algorithm": algorithm, "refused": str(error)}
        rows.append(row | at)
        part(rows[-1])
    gpus.close()
    return rows
