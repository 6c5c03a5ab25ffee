"""The sentences about a work on a processor and on a GPU, side by side in time."""

from __future__ import annotations

from kernels.i18n import mark, tr
from kernels.offload.works import NONE, PAGEABLE, PINNED
from visuals import units
from visuals.offload.evidence import OffloadEvidence

COPY_TITLES = {
    NONE: mark("data already on the GPU"),
    PINNED: mark("with copies, pinned memory"),
    PAGEABLE: mark("with copies, pageable memory"),
}
BAR_TITLES = {NONE: mark("GPU, no copies"), PINNED: mark("GPU, pinned"), PAGEABLE: mark("GPU, pageable")}
PROCESSOR = mark("processor")
PART_TITLES = {
    "in": mark("copy to GPU"),
    "call": mark("launch"),
    "kernel": mark("GPU kernel"),
    "out": mark("copy back"),
}
ROLES = {"in": "input", "call": "workspace", "kernel": "filter", "out": "output"}
PARTS = {
    "in": mark("The program copies the [inputs](input) to the GPU: {bytes_in}, from {start} to {end}."),
    "call": mark("The program calls the kernel: the [launch](workspace), from {start} to {end}."),
    "kernel": mark("The [kernel](filter) computes in {threads} threads, from {start} to {end}."),
    "out": mark("The program copies the [result](output) back: {bytes_out}, from {start} to {end}."),
    "": mark("The GPU is done. It took {gpu}."),
}
BUSY = mark("The [processor](workspace) is still busy: {share} of its time is over.")
DONE = mark("The [processor](workspace) is done. It took {cpu}.")
FASTER = mark("The GPU is {gain} times as fast as the processor: {gpu} and {cpu}.")
SLOWER = mark("The GPU takes {loss} times as long as the processor: {gpu} and {cpu}.")
UNKNOWN = mark("The processor’s time was not measured at this size. The GPU takes {gpu}.")


def part(found: OffloadEvidence, name: str, start: float, end: float) -> str:
    """Returns the sentences of an interval: what the GPU's side does, and how far the processor is at its end."""
    cpu, gpu = found.cpu, found.on_gpu
    fields = {
        "start": units.time_(start) if start else "0",
        "end": units.time_(end),
        "bytes_in": units.bytes_(found.bytes_in),
        "bytes_out": units.bytes_(found.bytes_out),
        "threads": units.whole(found.threads),
        "gpu": units.time_(gpu.ms),
    }
    said = [tr(PARTS[name], **fields)]
    if cpu:
        over = end >= cpu.ms * (1 - 1e-9)
        said.append(tr(DONE, cpu=units.time_(cpu.ms)) if over else tr(BUSY, share=units.share(end / cpu.ms)))
    return " ".join(said)


def verdict(found: OffloadEvidence) -> str:
    """Returns which side is faster, in a sentence."""
    gpu = units.time_(found.on_gpu.ms)
    if not found.gain:
        return tr(UNKNOWN, gpu=gpu)
    text = FASTER if found.gain >= 1 else SLOWER
    return tr(
        text, gain=units.ratio(found.gain), loss=units.ratio(1 / found.gain), gpu=gpu, cpu=units.time_(found.on_cpu.ms)
    )


# -- a program around the work -------------------------------------------------------------------------
BEFORE = mark(
    "On the processor alone the program takes {before}. [The rest](input) is {left} of it, this [work](workspace) {cpu}."
)
AFTER = mark(
    "The [GPU](filter) takes {gpu} in place of {cpu}. The whole program takes {after}: it is {speedup} times as fast."
)
LIMIT = mark(
    "A GPU that takes no time leaves [the rest](input), {rest}. The program cannot be more than {limit} times as fast."
)
NO_LIMIT = mark("Nothing is left on the processor, so the GPU’s time alone counts.")


# -- the machine ---------------------------------------------------------------------------------------
MACHINE = (
    mark("The [processor](workspace) has {cores} cores. Each computes with up to {vector} numbers in one instruction."),
    mark("The [GPU](filter) has {sms} SMs. Each has {lanes} lanes that compute with one number."),
    mark("So up to {processor} numbers at a time on the [processor](workspace), and {gpu} on the [GPU](filter)."),
)
