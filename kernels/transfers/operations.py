"""A transfer program as data: what it asks of the GPU, in order, and the time that each operation took or takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kernels.model.row import Json, Row

# Kinds of operations.
ALLOCATE, FREE, COPY_IN, COPY_OUT, LAUNCH, GRAPH = ("allocate", "free", "copy in", "copy out", "launch", "graph")
RECORD, WAIT, SYNCHRONIZE, TOUCH = "record", "wait", "synchronize", "touch"
# What executes them: the program on the processor, and three queues of the GPU.
HOST, IN, COMPUTE, OUT = "host", "in", "compute", "out"
QUEUES = (HOST, IN, COMPUTE, OUT)
QUEUE_OF = {COPY_IN: IN, LAUNCH: COMPUTE, GRAPH: COMPUTE, COPY_OUT: OUT}
# How memory is allocated.
CUDA_MALLOC, POOL, MANAGED = "cudaMalloc", "pool", "managed"


@dataclass(frozen=True)
class Op:
    """One operation. `line`: of kernels/transfers/programs.py. `waits`: the positions of the operations that it waits for by
    itself, beside those before it in its stream. `blocks`: whether the program continues only after its end."""

    kind: str
    line: int
    stream: str = ""
    nbytes: int = 0
    label: str = ""  # which rows or which array: "rows 0–511"
    pinned: bool = False
    blocks: bool = False
    waits: tuple[int, ...] = ()
    array: int = -1  # of an allocation or a release: which array, by its number
    memory: str = ""  # of an allocation or a release: CUDA_MALLOC, POOL or MANAGED
    rung: str = ""  # of a launch
    shape: tuple[tuple[str, int], ...] = ()  # of a launch
    launches: int = 0  # of a graph: the launches in it; of a launch 1

    @property
    def queue(self) -> str:
        return QUEUE_OF.get(self.kind, HOST)


@dataclass(frozen=True)
class Span:
    """When operation `op` kept a queue busy, in ms from the start of the program."""

    op: int
    queue: str
    start: float
    end: float

    @property
    def ms(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Timeline:
    """The spans of a program, and the ms from its first line until its last one is done."""

    spans: tuple[Span, ...]
    total_ms: float

    @cached_property
    def busy(self) -> Mapping[str, float]:
        """Returns for each queue how many ms it was busy."""
        return {queue: sum(s.ms for s in self.spans if s.queue == queue) for queue in QUEUES}

    @property
    def longest(self) -> float:
        """Returns the ms of the GPU's busiest queue: no order of the operations takes less."""
        return max(self.busy[queue] for queue in (IN, COMPUTE, OUT))

    def of(self, op: int) -> tuple[Span, ...]:
        return tuple(s for s in self.spans if s.op == op)

    def to_json(self) -> Json:
        return {
            "total_ms": round(self.total_ms, 6),
            "spans": [[s.op, s.queue, round(s.start, 6), round(s.end, 6)] for s in self.spans],
        }

    @classmethod
    def from_json(cls, data: Row) -> Timeline:
        return cls(tuple(Span(*span) for span in data["spans"]), data["total_ms"])


@dataclass
class Ledger:
    """Bytes that exist after each operation, by the line that allocated them. An allocator's log holds the same."""

    live: dict[int, tuple[int, int]] = field(default_factory=dict)  # by array: (line, bytes)

    def take(self, op: Op) -> None:
        if op.kind == ALLOCATE:
            self.live[op.array] = op.line, op.nbytes
        elif op.kind == FREE:
            self.live.pop(op.array, None)

    @property
    def total(self) -> int:
        return sum(nbytes for _, nbytes in self.live.values())

    def by_line(self) -> dict[int, int]:
        """Returns the bytes that exist, by the line that allocated them, the most first."""
        found: dict[int, int] = {}
        for line, nbytes in self.live.values():
            found[line] = found.get(line, 0) + nbytes
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def memory_after(ops: Sequence[Op]) -> list[int]:
    """Returns the bytes on the GPU after each operation."""
    ledger, found = Ledger(), []
    for op in ops:
        ledger.take(op)
        found.append(ledger.total)
    return found


def text_log(by_line: Mapping[int, int]) -> list[str]:
    """Returns an allocator's log as text: a line for each line of the programs that still holds memory."""
    return [f"programs.py:{line}: {nbytes:,} bytes in use" for line, nbytes in by_line.items()]
