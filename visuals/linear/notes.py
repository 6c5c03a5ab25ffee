"""Sentences about the figures of the ladders of a fully connected layer, with their numbers."""

from __future__ import annotations

from functools import partial

from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.linear.ladder import DINPUT, DWEIGHT, LINEAR, extents, threads
from kernels.linear.presets import DINPUT_PRESETS, DWEIGHT_PRESETS, LINEAR_PRESETS
from kernels.linear.shape import LinearShape
from kernels.model.launch import ceil
from kernels.records.gpus import cached
from visuals import units
from visuals.charts import layer_notes
from visuals.charts.ladder_notes import LadderNotes

PRESETS = {LINEAR: LINEAR_PRESETS, DINPUT: DINPUT_PRESETS, DWEIGHT: DWEIGHT_PRESETS}
ORDERS = {  # what the tiled kernel does with the order of its factors
    LINEAR: mark("x and W both have k along their rows, so both tiles are transposed."),
    DINPUT: mark("dy has n along its rows, so its tile is transposed. W is copied as it is."),
    DWEIGHT: mark("dy and x have m along their columns, so nothing is transposed."),
}


def cost_of(ladder: str, s: LinearShape) -> str:
    """Returns the operations and bytes of a product, the order of its factors, and how many blocks it has."""
    (_, rows), (_, cols), _ = extents(ladder, s)
    tiles = find(f"{ladder}/tile").default_tiles
    blocks = ceil(rows, tiles["BM"]) * ceil(cols, tiles["BN"])
    work = tr(
        "The product has {macs} multiply-adds and moves at least {bytes}.",
        macs=units.count(s.macs),
        bytes=units.bytes_(s.bytes),
    )
    share = tr(
        "Tiles of {rows} × {cols} give {blocks} blocks of {threads} threads. If the sum is cut into parts, there are as "
        "many times more.",
        rows=tiles["BM"],
        cols=tiles["BN"],
        blocks=decimal(f"{blocks:,}"),
        threads=threads(tiles),
    )
    return " ".join((work, tr(ORDERS[ladder]), share))


@cached(16)
def _examples(ladder: str):
    return layer_notes.examples(ladder, f"{ladder}/naive", PRESETS[ladder])


NOTES = {
    ladder: LadderNotes(
        partial(cost_of, ladder),
        layer_notes.gain(f"{ladder}/naive"),
        partial(_examples, ladder),
        mark("Recorded speed-up of our fastest kernel over one thread per result:"),
    )
    for ladder in PRESETS
}
