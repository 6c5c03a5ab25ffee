"""The scene of a transfer program: its operations on an axis of time, line by line beside its code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.i18n import tr
from kernels.transfers.operations import HOST, QUEUES, WAIT, Op
from kernels.transfers.scenarios import FILE
from visuals import units
from visuals.scene.diagram import Area
from visuals.scene.gantt import Bar, gantt
from visuals.scene.parts import Annotation, Captions, Group, Read, Source, Tensor, Write
from visuals.scene.scene import Scene
from visuals.transfers.captions import ROLES, ROW_TITLES, WORDS, caption
from visuals.transfers.evidence import TransferEvidence

PROGRAM, GPU = "host", "gpu"  # the tensors: what the program spends on each operation, and the GPU


def transfer_scene(found: TransferEvidence) -> Scene:
    """Returns the scene of a scenario with its measured, recorded or predicted times."""
    ops, s = found.ops, found.settings
    steps = len(ops)
    texts = tuple(caption(found, at) for at in range(steps))
    text, first = s.row.source()
    cells = np.arange(steps)
    return Scene(
        key=f"{s.scenario} {s.rows} {s.n} {found.kind}",
        title=tr(s.row.title),
        tensors=tuple(Tensor(n, n, tr(title), role, 1, 1, steps) for n, title, role in _tensors()),
        groups=(Group(((PROGRAM,), (GPU,))),),
        steps=steps,
        step_name=tr("operation"),
        order_name=tr("program order"),
        order_note=tr("The program issues its operations in this order. The axis shows when the GPU executes them."),
        writes=tuple(
            Write(name, cells, np.arange(1, steps + 1, dtype=np.float32), cells=cells) for name in (PROGRAM, GPU)
        ),
        reads=(_reads(ops),),
        captions=Captions(texts, np.arange(steps), np.zeros((steps, 1), int)),
        annotations=tuple(
            Annotation(name, Captions(texts, np.arange(steps), np.zeros((steps, 1), int))) for name in (PROGRAM, GPU)
        ),
        source=Source(FILE.name, text, np.array([op.line for op in ops]), first),
        diagram=_diagram(found),
    )


def _tensors() -> Iterator[tuple[str, str, str]]:
    yield PROGRAM, "host", "workspace"
    yield GPU, "GPU", "input"


def _diagram(found: TransferEvidence):
    memory = np.array(found.memory, float)
    areas = (Area(tr("arrays of the program"), "workspace", memory),) if memory.any() else ()
    return gantt(
        list(_bars(found)),
        [tr(ROW_TITLES[queue]) for queue in QUEUES],
        found.timeline.total_ms,
        len(found.ops),
        areas,
        tr("GPU memory after each operation:") if areas else "",
        [units.bytes_(nbytes) for nbytes in found.memory] if areas else (),
        (0.8, 1.0, 1.0, 1.0),
    )


def _bars(found: TransferEvidence) -> Iterator[Bar]:
    for span in found.timeline.spans:
        op = found.ops[span.op]
        tensor = PROGRAM if span.queue == HOST else GPU
        own = span.queue == op.queue
        lines = (_label(op) if own else tr("call") if not op.blocks else tr("waits"), units.time_(span.ms))
        yield Bar(tensor, span.op, QUEUES.index(span.queue), span.start, span.end, ROLES[span.queue], lines, span.op)


def _label(op: Op) -> str:
    return op.label or tr(WORDS[op.kind])


def waits_for(ops: tuple[Op, ...], at: int) -> list[int]:
    """Returns the operations of the GPU after which one begins: the one before it in its stream, and those that its stream
    waits for."""
    found, stream = [], ops[at].stream
    for n in range(at - 1, -1, -1):
        if ops[n].stream == stream and ops[n].queue != HOST:
            found.append(n)
            break
        if ops[n].kind == WAIT and ops[n].stream == stream:
            found += [last for event in ops[n].waits if (last := _last_before(ops, event)) is not None]
    return found


def _last_before(ops: tuple[Op, ...], event: int) -> int | None:
    """Returns the last operation of the GPU in an event's stream before the event."""
    stream = ops[event].stream
    return next((n for n in range(event - 1, -1, -1) if ops[n].stream == stream and ops[n].queue != HOST), None)


def _reads(ops: tuple[Op, ...]) -> Read:
    cells = []
    for at, op in enumerate(ops):
        if op.kind == WAIT:
            cells.append([last for event in op.waits if (last := _last_before(ops, event)) is not None])
        else:
            cells.append(waits_for(ops, at) if op.queue != HOST else [])
    start = np.concatenate([[0], np.cumsum([len(each) for each in cells])])
    return Read(GPU, start, np.array([n for each in cells for n in each], int))
