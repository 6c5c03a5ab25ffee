"""Sentences about the figures of the elementwise ladders, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.elementwise.shape import BITS, BYTES, KEPT, OUTPUT, MapsShape, ReluShape
from kernels.i18n import mark, tr
from kernels.ladders import LADDERS, find
from kernels.model.shape import Shape
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.beside import beside_copy, beside_library
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title

# What the minimum traffic of each ladder is made of.
_TRAFFIC = {
    "relu": mark("x is read once and y is written once."),
    "relu-backward": mark("dy and what was kept are read once, dx is written once."),
    "gelu": mark("x is read once and y is written once. x must stay in memory: the backward pass needs it."),
    "gelu-backward": mark("dy and x are read once, dx is written once."),
    "bias": mark("x is read once and y is written once. b stays in a cache."),
    "bias-backward": mark("dy is read once. db is as small as b."),
    "residual": mark("a and b are read once and y is written once."),
    "residual-backward": mark("dy, y and db are read once, da and db are written once."),
}
_KEPT = {
    OUTPUT: mark("Nothing but y is kept for the backward pass. It must stay in memory: {y}."),
    BYTES: mark("A mask of bytes is kept too: {bytes}. Then y need not stay in memory ({y})."),
    BITS: mark(
        "A mask of bits is kept too: {bits}, an eighth of a mask of bytes. Then y need not stay in memory ({y})."
    ),
}


def cost(ladder: str, s: MapsShape) -> str:
    """Returns what a shape moves at least, and for ReLU what each way to keep it costs."""
    sentences = [
        tr(
            "At least {bytes} are moved, {each} bytes per element.",
            bytes=units.bytes_(s.bytes),
            each=units.ratio(s.bytes / s.elements),
        ),
        tr(_TRAFFIC[ladder]),
    ]
    if isinstance(s, ReluShape):
        masks = {keep: s.with_(keep=keep).mask_bytes for keep in KEPT}
        fields = {name: units.bytes_(masks[name]) for name in (BYTES, BITS)}
        sentences.append(tr(_KEPT[s.keep], y=units.bytes_(4 * s.elements), **fields))
    if ladder == "residual":
        sentences.append(
            tr(
                "Two launches move {bytes}: the sum is written and read again.",
                bytes=units.bytes_(s.bytes + 8 * s.elements),
            )
        )
    return " ".join(sentences)


def gain(ladder: str, rows: Mapping[str, Row]) -> str:
    """Returns how our fastest kernel compares with the plainest, with PyTorch and with a copy. `rows`: by rung name, of one
    device. "" if there is nothing to compare."""
    plain = rows.get(LADDERS[ladder].rungs[0].name)
    best = fastest(row for name, row in rows.items() if not find(name).library)
    if not plain or not best:
        return ""
    names = {"name": title(best), "plain": title(plain)}
    if best is plain:
        sentences = [tr("“{plain}” is the fastest of our kernels at this size.", **names)]
    elif within_spread(best, plain):
        sentences = [tr("“{name}” and “{plain}” take the same time: their spreads overlap.", **names)]
    else:
        ratio = units.ratio(plain["median_ms"] / best["median_ms"])
        sentences = [tr("“{name}” is {ratio}× as fast as “{plain}”.", ratio=ratio, **names)]
    library = rows.get(f"{ladder}/library")
    shape = LADDERS[ladder].shape(**best["shape"])
    sentences += [beside_library(best, library) if library else "", beside_copy(shape, best)]
    return " ".join(filter(None, sentences))


@cached(16)
def examples(ladder: str):
    """Returns (preset, text) of the largest and the smallest speedup over the plainest kernel, from the cold recordings at
    the default tile sizes."""
    plain = LADDERS[ladder].rungs[0].name

    def gained(s: Shape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS[ladder].rungs])
        best = fastest(row for name, row in rows.items() if not find(name).library)
        return rows[plain]["median_ms"] / best["median_ms"] if best and plain in rows else None

    return extremes(gained, presets=LADDERS[ladder].presets)


def notes_of(ladder: str) -> LadderNotes:
    """Returns the sentences of an elementwise ladder."""
    return LadderNotes(
        lambda s: cost(ladder, s),
        lambda rows: gain(ladder, rows),
        lambda: examples(ladder),
        mark("Recorded speed-up of our fastest kernel over the plainest:"),
    )


NOTES = {ladder: notes_of(ladder) for ladder in _TRAFFIC}
