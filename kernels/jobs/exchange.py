"""A collective on all GPUs of this machine, or on emulated ones, as one request to the process that runs kernels.

A GPU that never answers ends the process, not the app: our kernels give up after their patience, a wait for NCCL after a
deadline, and the worker kills the process after its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from kernels.activity import EXCHANGING
from kernels.collectives import executor, schedules
from kernels.collectives import gpus as collective_gpus
from kernels.collectives.emulated import Ranks
from kernels.collectives.gpus import NCCL, Gpus
from kernels.collectives.kernels import KERNELS
from kernels.collectives.shape import ALL_REDUCE, ITEM
from kernels.jobs.job import Part, Rows, packed
from kernels.model.program import RuleError
from kernels.model.row import Json
from kernels.records.row import commit

EMULATED_THREADS = 64  # of the one block on each GPU


@dataclass(frozen=True)
class Exchange:
    """A collective over `ranks` GPUs, `elements` float32 each: NCCL's, and for an all-reduce each of our kernels.

    emulated: our kernels of an all-reduce in the emulator, which counts bytes and takes no times.
    """

    CACHED = True

    kind: str
    ranks: int
    elements: int
    emulated: bool = False

    @property
    def label(self) -> str:
        return f"{self.kind} over {self.ranks} GPUs"

    @property
    def shape(self) -> str:
        return f"{self.ranks} arrays of {self.elements:,} elements"

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Returns our kernels and NCCL for an all-reduce, NCCL alone for another kind, only our kernels if emulated."""
        if self.emulated:
            return tuple(KERNELS)
        return (*KERNELS, NCCL) if self.kind == ALL_REDUCE else (NCCL,)

    def key(self) -> Hashable:
        """Returns a key that is equal for equal requests."""
        return "exchange", self.kind, self.ranks, self.elements, self.emulated

    def packed(self) -> bytes:
        return packed(self)


def exchange(request: Exchange, progress: Callable[[float, str], None], part: Part = lambda part: None) -> Rows:
    """Returns a row for each algorithm, verified on every GPU and timed. A row of one that cannot run has the reason
    ("refused"). RuleError if the GPUs are not there; DevicesHung if they do not answer."""
    if request.emulated:
        return list(_emulate(request, progress))
    gpus = Gpus(request.ranks, request.elements)
    at = {
        "device": gpus.devices.name(0),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
    }
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


def _emulate(request: Exchange, progress: Callable[[float, str], None]) -> Iterator[Json]:
    """Yields a row for each of our kernels: whether its result is that of the schedule bit for bit, and whether each link
    moved the same bytes. CollectiveError if a result is wrong."""
    for n, algorithm in enumerate(request.algorithms):
        progress(n / len(request.algorithms), EXCHANGING)
        plan = schedules.schedule(request.kind, algorithm, request.ranks, request.elements)
        arrays = executor.inputs(plan.shape)
        run = Ranks(algorithm, arrays).run(blocks=1, threads=EMULATED_THREADS)
        executor.verify(plan.shape, arrays, run.results)
        expected = executor.execute(plan, arrays)
        yield {
            "kind": request.kind,
            "algorithm": algorithm,
            "ranks": request.ranks,
            "elements": request.elements,
            "equal": all(a.tobytes() == b.tobytes() for a, b in zip(run.results, expected, strict=True)),
            "same_bytes": dict(run.link_bytes) == {link: ITEM * k for link, k in plan.link_elements().items()},
        }
