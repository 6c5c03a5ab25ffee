# fmt: off
"""What the stage shows of our ring: the arrays and results of all GPUs, and the lines that send a chunk. Block r is that of GPU r."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kernels.collectives.emulated import IN, OUT, of_rank
from kernels.engines.emulator.watch.recording import Recording
from kernels.i18n import mark, tr
from visuals.scene.compiler.moment import Played
from visuals.scene.compiler.steps import Visit, active_threads
from visuals.scene.compiler.view import Buffer, View, step
from visuals.scene.parts import Group

ROUND = mark("round by round")
ROUND_NOTE = mark("All GPUs run the kernel at the same time. In the emulator they take each line together. On GPUs the slices of several rounds are under way at once. All values are those of the kernel in the emulator.")
# The lines that send a chunk: its own one, a sum, the complete sum, a copy.
OWN, SUM, LAST, COPY = (
    re.compile(rf"pass_on\(next_out, {arguments}, begin")
    for arguments in re.split("; ", "nullptr, in, nullptr; nullptr, out, in; out, out, in; nullptr, out, nullptr")
)
STEPS = {
    "start": step("signal(previous + block + READY", "Each GPU holds [an array](input) of {n * VEC} numbers. At the end every GPU must hold [the sum](output) of all {RANKS} arrays. Each tells the GPU before it that its result may be written."),
    "own": step(OWN, "Round {step + 1} of {2 * (RANKS - 1)}: each GPU sends one chunk of [its array](input) to the next. GPU 1 receives chunk {(chunk - rank + RANKS) % RANKS} from GPU 0."),
    "sum": step(SUM, "Round {step + 1} of {2 * (RANKS - 1)}: each GPU [adds](output) its own numbers to the chunk that it has received, and sends the sum to the next. GPU 1 receives chunk {(chunk - rank + RANKS) % RANKS} from GPU 0."),
    "last": step(LAST, "Round {step + 1} of {2 * (RANKS - 1)}: each GPU [adds](output) its own numbers as the last. It keeps the [complete chunk](output) and sends it to the next. GPU 1 receives chunk {(chunk - rank + RANKS) % RANKS} from GPU 0."),
    "copy": step(COPY, "Round {step + 1} of {2 * (RANKS - 1)}: each GPU sends the [complete chunk](output) that it has received to the next. GPU 1 receives chunk {(chunk - rank + RANKS) % RANKS} from GPU 0."),
    "end": step("own[block + READY + 1] = before", "Every GPU holds [the sum](output), equal bit for bit."),
}


def rounds(recording: Recording, visits: Sequence[Visit]) -> list[Visit]:
    """Returns the steps with one for each round, of all GPUs: what they do later in a round that was begun before belongs to the step before."""
    played, found, latest = Played(recording, View((), (), ())), [], -1
    for visit in visits:
        if visit.kind not in ("start", "end"):
            pc = int(recording.watched.pc[visit.first])
            (number,) = played.numbers("step", (pc,), in_function=False)
            now = played.after(number.history, visit.end - 1).of[active_threads(recording.watched, visit, recording.block_threads)].max()
            if now <= latest:
                found[-1] = replace(found[-1], end=visit.end, stop=visit.stop)
                continue
            latest = now
        found.append(visit)
    return found


def ring_view(ranks: int) -> View:
    """Returns the view of our ring over so many GPUs."""
    tensors = [
        shown
        for rank in range(ranks)
        for shown in (
            Buffer(f"in{rank}", "input", tr("array of GPU {n}", n=rank), of=of_rank(IN, rank)),
            Buffer(f"gpu{rank}", "output", tr("result of GPU {n}", n=rank), of=of_rank(OUT, rank)),
        )
    ]
    groups = tuple(Group(((f"in{rank}", f"gpu{rank}"),), "workspace") for rank in range(ranks))
    return View(tuple(tensors), groups, (STEPS,), order=(ROUND, ROUND_NOTE), arrange=rounds)
