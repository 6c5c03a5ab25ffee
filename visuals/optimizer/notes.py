"""Sentences about the figures of the optimisers' ladders, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import LADDERS, find
from kernels.model.shape import Shape
from kernels.optimizer.shape import CHUNK, AdamShape, OptimizerShape
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.beside import beside_copy, beside_library
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title

PER_TENSOR = "per-tensor"
FLOAT = 4  # bytes


def cost(s: OptimizerShape) -> str:
    """Returns what an optimiser's arrays take and what its step moves at least."""
    adam = isinstance(s, AdamShape)
    fields = {
        "bytes": units.bytes_(s.bytes),
        "each": FLOAT * s.ARRAYS,
        "kept": units.bytes_((2 if adam else 1) * FLOAT * s.elements),
    }
    kept = (
        tr("m and v take {kept}, twice the memory of the weights.", **fields)
        if adam
        else tr("v takes {kept}, as much memory as the weights.", **fields)
    )
    return " ".join(
        (
            trn("The step updates {n} tensor.", "The step updates {n} tensors.", len(s.counts)),
            tr("At least {bytes} are moved, {each} bytes per weight.", **fields),
            kept,
            trn(
                "The table has {n} chunk of at most {chunk} elements.",
                "The table has {n} chunks of at most {chunk} elements.",
                len(s.chunks),
                chunk=decimal(f"{CHUNK:,}"),
            ),
        )
    )


def gain(ladder: str, rows: Mapping[str, Row]) -> str:
    """Returns how one launch compares with a launch per tensor, with PyTorch and with a copy. `rows`: by rung name, of one
    device. "" if there is nothing to compare."""
    many = rows.get(f"{ladder}/{PER_TENSOR}")
    best = fastest(row for name, row in rows.items() if not find(name).library)
    if not many or not best:
        return ""
    launches = len(LADDERS[ladder].shape(**many["shape"]).counts)
    names = {"name": title(best), "launches": launches}
    if best is many:
        sentences = [tr("A launch per tensor is the fastest of our kernels at this size.")]
    elif within_spread(best, many):
        sentences = [tr("“{name}” and a launch per tensor take the same time: their spreads overlap.", **names)]
    else:
        ratio = units.ratio(many["median_ms"] / best["median_ms"])
        sentences = [
            trn(
                "“{name}” is {ratio}× as fast as {n} launch per step.",
                "“{name}” is {ratio}× as fast as {n} launches per step.",
                launches,
                ratio=ratio,
                name=names["name"],
            )
        ]
    libraries = [row for name, row in rows.items() if find(name).library]
    shape = LADDERS[ladder].shape(**best["shape"])
    sentences += [*(beside_library(best, row) for row in libraries), beside_copy(shape, best)]
    return " ".join(filter(None, sentences))


@cached(16)
def examples(ladder: str):
    """Returns (preset, text) of the largest and the smallest speedup over a launch per tensor, from the cold recordings at
    the default tile sizes."""
    many = f"{ladder}/{PER_TENSOR}"

    def gained(s: Shape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS[ladder].rungs])
        best = fastest(row for name, row in rows.items() if not find(name).library)
        return rows[many]["median_ms"] / best["median_ms"] if best and many in rows else None

    return extremes(gained, presets=LADDERS[ladder].presets)


def notes_of(ladder: str) -> LadderNotes:
    """Returns the sentences of an optimiser's ladder."""
    return LadderNotes(
        cost,
        lambda rows: gain(ladder, rows),
        lambda: examples(ladder),
        mark("Recorded speed-up of our fastest kernel over a launch per tensor:"),
    )


NOTES = {ladder: notes_of(ladder) for ladder in ("sgd", "adam")}
