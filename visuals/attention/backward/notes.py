"""Sentences about the figures of attention's backward pass, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.attention.backward.common import RECOMPUTED
from kernels.attention.backward.presets import BACKWARD_PRESETS
from kernels.attention.backward.shape import PRODUCTS, AttentionBackwardShape
from kernels.i18n import mark, tr
from kernels.ladders import LADDERS, find
from kernels.model.preset import Preset
from kernels.model.program import WORKSPACE
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, capitalized, extremes, recorded_at, title

NAME = "attention-backward"
NAIVE, ATOMIC, TWO = (f"{NAME}/{name}" for name in ("naive", "flash", "flash-two-kernels"))
LIBRARY = f"{NAME}/library"  # prefix of PyTorch's


def squares(s: AttentionBackwardShape) -> int:
    """Returns the bytes of P and dS in FP32."""
    return 2 * 4 * s.heads * s.N**2


def backward_cost(s: AttentionBackwardShape) -> str:
    """Returns sentences: the bytes of P and dS, what flash attention saves instead, and the products of each way."""
    kept = find(ATOMIC).build(s.with_(dtype="fp32"), find(ATOMIC).default_tiles).nbytes(WORKSPACE)
    return " ".join(
        (
            tr(
                "P and dS take {bytes}, {ratio}× the {least} of all inputs and gradients.",
                bytes=units.bytes_(squares(s)),
                ratio=units.ratio(squares(s) / s.bytes),
                least=units.bytes_(s.bytes),
            ),
            tr(
                "Flash attention keeps one number per query instead, D: {bytes}. L comes from the forward pass and has the same size.",
                bytes=units.bytes_(kept),
            ),
            tr(
                "It computes P again from L. So the backward pass has {n} products, where the forward pass has two.",
                n=PRODUCTS,
            ),
            tr(
                "With a kernel of its own for dQ, P and dP are computed twice: {n} products. Then no atomics are needed.",
                n=RECOMPUTED,
            ),
        )
    )


def backward_gain(rows: Mapping[str, Row]) -> str:
    """Returns sentences that compare flash attention with P and dS in memory, one kernel with two, and both with PyTorch.
    `rows`: by rung name, of one device. "" without flash attention."""
    ours = fastest(row for name, row in rows.items() if name.startswith(ATOMIC))
    if not ours:
        return ""
    sentences = []
    if naive := rows.get(NAIVE):
        sentences.append(_compared(ours, naive))
    if ATOMIC in rows and TWO in rows:
        sentences.append(_compared(*sorted((rows[ATOMIC], rows[TWO]), key=lambda row: row["median_ms"])))
    if library := fastest(row for name, row in rows.items() if name.startswith(LIBRARY)):
        sentences.append(_compared(ours, library))
    return " ".join(sentences)


def _compared(row: Row, other: Row) -> str:
    """Returns how fast a row is compared with another one."""
    ratio = other["median_ms"] / row["median_ms"]
    fields = {
        "name": capitalized(title(row)),
        "other": title(other),
        "ratio": units.ratio(ratio),
        "share": units.share(ratio),
    }
    if within_spread(row, other):
        return tr("{name} and {other} do not differ measurably: their spreads overlap.", **fields)
    if ratio > 1:
        return tr("{name} is {ratio}× as fast as {other}.", **fields)
    return tr("{name} reaches {share} of the speed of {other}.", **fields)


@cached(1)
def backward_examples() -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the largest and the smallest speed-up of flash attention over P and dS in memory, from the
    cold recordings at the default tile sizes."""

    def gained(s: AttentionBackwardShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS[NAME].rungs])
        ours = fastest(row for name, row in rows.items() if name.startswith(ATOMIC))
        return rows[NAIVE]["median_ms"] / ours["median_ms"] if ours and NAIVE in rows else None

    return extremes(gained, presets=BACKWARD_PRESETS)


BACKWARD = LadderNotes(
    backward_cost,
    backward_gain,
    backward_examples,
    mark("Speed-up of flash attention's backward pass over P and dS in memory, recorded:"),
)
