"""The sentences about the operations of a transfer program."""

from __future__ import annotations

from kernels.i18n import mark, tr
from kernels.transfers.operations import (
    ALLOCATE,
    COMPUTE,
    COPY_IN,
    COPY_OUT,
    CUDA_MALLOC,
    FREE,
    GRAPH,
    HOST,
    IN,
    LAUNCH,
    MANAGED,
    OUT,
    POOL,
    RECORD,
    SYNCHRONIZE,
    TOUCH,
    WAIT,
    Op,
    Span,
)
from visuals import units
from visuals.transfers.evidence import TransferEvidence

ROLES = {HOST: "workspace", IN: "input", COMPUTE: "filter", OUT: "output"}
ROW_TITLES = {HOST: mark("host"), IN: mark("copy in"), COMPUTE: mark("kernels"), OUT: mark("copy out")}
MEMORIES = {POOL: mark("a memory pool"), CUDA_MALLOC: mark("cudaMalloc"), MANAGED: mark("cudaMallocManaged")}
WORDS = {  # in a box
    ALLOCATE: mark("allocate"),
    FREE: mark("free"),
    COPY_IN: mark("in"),
    COPY_OUT: mark("out"),
    LAUNCH: mark("kernel"),
    GRAPH: mark("graph"),
    SYNCHRONIZE: mark("wait"),
    TOUCH: mark("pages"),
}
TEXTS = {
    ALLOCATE: mark("The program gets {bytes} on the GPU from {memory}. {held} are in use."),
    FREE: mark("{bytes} go back to {memory}. {held} are in use."),
    COPY_IN: mark("The copy-in engine reads [{what}](input), {bytes}, from the host{when}."),
    COPY_OUT: mark("The copy-out engine writes [{what}](output), {bytes}, to the host{when}."),
    LAUNCH: mark("The [kernel](filter) computes {what}{when}."),
    GRAPH: mark("One [graph](filter) starts all {launches} kernels{when}."),
    RECORD: mark("An event marks this place in stream {stream}. Nothing waits yet."),
    WAIT: mark("Stream {stream} waits for the event of stream {other}. The program goes on."),
    SYNCHRONIZE: mark("The program waits for the GPU{when}."),
    TOUCH: mark("The processor touches the array, {bytes}. The driver moves its pages."),
}
FROM_TO = mark(" from {start} to {end}")
PAGEABLE = mark("The driver copies pageable memory through a pinned buffer, so the program waits.")
BLOCKS = mark("The program waits for the end.")
BESIDE = mark("At the same time: {others}.")
ALL, PART = mark("the whole batch"), mark("rows {rows}")
SHORT = mark("a short sum")


def caption(found: TransferEvidence, at: int) -> str:
    """Returns the sentences of an operation."""
    op = found.ops[at]
    fields = {
        "bytes": units.bytes_(op.nbytes),
        "memory": tr(MEMORIES.get(op.memory, "")),
        "held": units.bytes_(found.memory[at]),
        "what": _what(op),
        "stream": op.stream,
        "launches": op.launches,
        "when": _when(found, at),
        "other": found.ops[op.waits[0]].stream if op.waits else "",
    }
    sentences = [tr(TEXTS[op.kind], **fields)]
    if op.kind in (COPY_IN, COPY_OUT):
        if not op.pinned:
            sentences.append(tr(PAGEABLE))
        elif op.blocks:
            sentences.append(tr(BLOCKS))
    if others := _beside(found, at):
        sentences.append(tr(BESIDE, others=", ".join(tr(ROW_TITLES[queue]) for queue in others)))
    return " ".join(sentences)


def _what(op: Op) -> str:
    if op.rung.startswith("add/"):
        return tr(SHORT)
    return tr(PART, rows=op.label) if op.label else tr(ALL)


def span(found: TransferEvidence, at: int) -> Span | None:
    """Returns the span of an operation on its own queue."""
    queue = found.ops[at].queue
    return next((s for s in found.timeline.of(at) if s.queue == queue), None)


def _when(found: TransferEvidence, at: int) -> str:
    own = span(found, at)
    return tr(FROM_TO, start=units.time_(own.start), end=units.time_(own.end)) if own else ""


def _beside(found: TransferEvidence, at: int) -> list[str]:
    """Returns the queues of the GPU that are busy while an operation runs on another one."""
    own = span(found, at)
    if own is None or own.queue == HOST:
        return []
    return [
        queue
        for queue in (IN, COMPUTE, OUT)
        if queue != own.queue
        and any(
            s.queue == queue and min(s.end, own.end) - max(s.start, own.start) > 0.02 * own.ms
            for s in found.timeline.spans
        )
    ]
