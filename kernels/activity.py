"""What a run does at the moment, in words: its process sends them in English, a page shows them in the reader's language."""

from __future__ import annotations

from kernels.i18n import mark, tr, tr_filled

WAITING = mark("waiting")
STARTING = mark("starting")
REFERENCE = mark("computing the float64 reference")
CEILINGS = mark("measuring peak bandwidth and FLOP/s")
VERIFYING = mark("verifying {kernel}")
TIMING = mark("timing {n} kernels in turn")
TRAINING = mark("training, step {step}")
NODES = mark("timing each kernel of the step")
EXCHANGING = mark("exchanging between the GPUs")
COMPARING = mark("comparing the weights with one GPU")
STEPPING = mark("timing the step")
TRANSFERS = mark("moving data, run {n} of {all}")
SIZES = mark("timing size {n} of {all}")
DONE = mark("done")

TEMPLATES = {
    text: text
    for text in (
        WAITING,
        STARTING,
        REFERENCE,
        CEILINGS,
        VERIFYING,
        TIMING,
        TRAINING,
        NODES,
        EXCHANGING,
        COMPARING,
        STEPPING,
        TRANSFERS,
        SIZES,
        DONE,
    )
}


def shown(text: str) -> str:
    """Returns what a run does, as its process sent it, in the reader's language. The name of a kernel stays as it is."""
    return tr_filled(text, TEMPLATES)


def place(text: str, ahead: int) -> str:
    """Returns how many runs come before one that waits, or what it does."""
    return tr("{n} ahead of you", n=ahead) if ahead else shown(text)
