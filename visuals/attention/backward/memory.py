"""The bytes that two rungs keep beside inputs and gradients, over N, as columns of cells: N × N against a number per query."""

from __future__ import annotations

from math import log

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import cached, decimal, mark, tr
from kernels.ladders import find
from kernels.machine import memory_levels
from kernels.model.program import WORKSPACE
from visuals import units
from visuals.attention.backward.notes import ATOMIC, NAIVE
from visuals.scene.parts import Annotation, Captions, Group, Reading, Tensor, Write
from visuals.scene.scene import Scene

MEMORY = "memory"  # the name of the order in the URL
DESCRIPTION = mark("the bytes kept beside inputs and gradients while N doubles")
LENGTHS = tuple(2**n for n in range(7, 18))  # N of each column
FACTOR = 4  # a cell more is so many times the bytes: what twice the N costs N × N matrices
CHARTS = {NAIVE: ("squares", "workspace", mark("P, dS, L and D")), ATOMIC: ("rows", "output", mark("L and D"))}
ORDER_NOTE = mark(
    "Each column is one N. Each filled cell is four times the bytes of the cell under it. Nothing runs: the bytes are those of the "
    "programs’ buffers."
)
CAPTION = mark(
    "N = {N}. With P and dS in memory: [{squares}](workspace), {per_key} numbers for each query. Flash attention keeps L and D: "
    "[{rows}](output), two numbers for each query."
)
TOO_LARGE = mark("P and dS need more than the {memory} of one {device}.")


def kept(rung: str, s: AttentionBackwardShape) -> int:
    """Returns the bytes that a rung keeps beside Q, K, V, O, dO and the gradients: its workspace, and L."""
    program = find(rung).build(s, find(rung).default_tiles)
    return program.nbytes(WORKSPACE) + sum(b.nbytes for b in program.buffers if b.name == "L")


def heights(counts: np.ndarray, least: float) -> np.ndarray:
    """Returns the filled cells of each column: one for `least` bytes, one more for each FACTOR."""
    return 1 + np.floor(np.log(counts / least) / log(FACTOR) + 1e-9).astype(int)


@cached(1)
def capacity() -> tuple[str, int] | None:
    """Returns the recorded device and its memory in bytes; None without a recording."""
    levels = memory_levels.recorded()
    return (levels.device, levels.levels[-1].bytes) if levels and levels.levels[-1].bytes else None


def memory_scene(s: AttentionBackwardShape) -> Scene:
    """Returns the scene at the B, H, d and type of a shape: step n shows N = LENGTHS[n]."""
    s = s.with_(dtype="fp32")  # of both rungs
    counts = {rung: np.array([kept(rung, s.with_(N=N)) for N in LENGTHS], float) for rung in CHARTS}
    least = min(found[0] for found in counts.values())
    rows = max(int(heights(found, least)[-1]) for found in counts.values())
    steps = len(LENGTHS)
    return Scene(
        key=f"memory {s.with_(N=1, causal=0, scale=0.0)}",
        title=tr("memory over N"),
        tensors=tuple(_chart(*CHARTS[rung], rows) for rung in CHARTS),
        groups=(Group((tuple(name for name, *_ in CHARTS.values()),), "workspace", _title(s), aligned=True),),
        steps=steps,
        step_name=tr("N"),
        order_name=tr("memory over N"),
        order_note=tr(ORDER_NOTE),
        writes=tuple(_columns(CHARTS[rung][0], found, least, rows) for rung, found in counts.items()),
        captions=Captions(_captions(counts), np.arange(steps), np.zeros((steps, 1), int)),
        annotations=tuple(_columns_in_words(CHARTS[rung][0], found, rows) for rung, found in counts.items()),
        readings=tuple(
            Reading(tr("MB of {what}", what=tr(CHARTS[rung][2])), _three_digits(found / 1e6), "predicted")
            for rung, found in counts.items()
        ),
    )


def _title(s: AttentionBackwardShape) -> str:
    return tr(
        "kept in global memory: {heads} heads, N = {first} to {last}",
        heads=decimal(f"{s.heads:,}"),
        first=LENGTHS[0],
        last=decimal(f"{LENGTHS[-1]:,}"),
    )


def _chart(name: str, role: str, title: str, rows: int) -> Tensor:
    return Tensor(name, tr(title), tr(title), role, 1, rows, len(LENGTHS), timed=True)


def _columns(name: str, counts: np.ndarray, least: float, rows: int) -> Write:
    """Returns the write of each column at its step, from the bottom up. Filled cells hold N."""
    filled = np.arange(rows, 0, -1)[:, None] <= heights(counts, least)
    column, row = np.nonzero(filled.T)
    return Write(name, column, np.array(LENGTHS, np.float32)[column], cells=row * len(LENGTHS) + column)


def _columns_in_words(name: str, counts: np.ndarray, rows: int) -> Annotation:
    """Returns the note on each cell: the N of its column, and the bytes."""
    texts = tuple(
        tr("N = {N}: {bytes}.", N=decimal(f"{N:,}"), bytes=units.bytes_(count))
        for N, count in zip(LENGTHS, counts, strict=True)
    )
    column = np.tile(np.arange(len(LENGTHS)), rows)
    return Annotation(name, Captions(texts, column, np.zeros((column.size, 1), int)))


def _three_digits(numbers: np.ndarray) -> np.ndarray:
    return np.array([float(f"{number:.3g}") for number in numbers])


def _captions(counts: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Returns the caption of each N. The device is named where P and dS do not fit."""
    found, device = [], capacity()
    for n, N in enumerate(LENGTHS):
        text = tr(
            CAPTION,
            N=decimal(f"{N:,}"),
            per_key=decimal(f"{2 * N + 2:,}"),
            squares=units.bytes_(counts[NAIVE][n]),
            rows=units.bytes_(counts[ATOMIC][n]),
        )
        if device and counts[NAIVE][n] > device[1]:
            text += " " + tr(TOO_LARGE, memory=units.bytes_(device[1]), device=device[0])
        found.append(text)
    return tuple(found)
