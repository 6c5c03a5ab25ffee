"""Sentences about the figures of the embedding ladders, with their numbers."""

from __future__ import annotations

import math
from functools import partial

from kernels.embedding.ladder import BACKWARD, FORWARD
from kernels.embedding.presets import BACKWARD_PRESETS, FORWARD_PRESETS
from kernels.embedding.shape import EQUAL, ZIPF, EmbeddingBackwardShape, EmbeddingShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.program import WORKSPACE
from kernels.records.gpus import cached
from visuals import units
from visuals.charts import layer_notes
from visuals.charts.ladder_notes import LadderNotes

PLAIN = {FORWARD: f"{FORWARD}/elements", BACKWARD: f"{BACKWARD}/atomics"}
PRESETS = {FORWARD: FORWARD_PRESETS, BACKWARD: BACKWARD_PRESETS}
FLOAT = 4  # bytes


def forward_cost(s: EmbeddingShape) -> str:
    """Returns what an embedding moves."""
    return tr(
        "Rows of the table with {rows} are read, and {rows} are written. The table itself has {table}. Rows of frequent "
        "tokens come from a cache.",
        rows=units.bytes_(FLOAT * s.macs),
        table=units.bytes_(FLOAT * s.V * s.d),
    )


def backward_cost(s: EmbeddingBackwardShape) -> str:
    """Returns what the gradient moves, how often the most frequent token occurs, and the workspace of the sort."""
    found = find(f"{BACKWARD}/sorted")
    sort = found.build(s, found.default_tiles).nbytes(WORKSPACE)
    moved = tr(
        "At least {bytes} are moved: dy read once, the gradient of the whole table written once. Sorting needs {sort} of "
        "workspace.",
        bytes=units.bytes_(s.bytes),
        sort=units.bytes_(sort),
    )
    return f"{moved} {_repeats(s)}"


def _repeats(s: EmbeddingBackwardShape) -> str:
    rows = decimal(f"{s.M:,}")
    if s.tokens == EQUAL:
        return tr("All {rows} rows are added to one row.", rows=rows)
    if s.tokens == ZIPF:
        return tr("The most frequent token has about {share} of the {rows} rows.", rows=rows, share=_largest_share(s.V))
    return tr("Tokens are equally frequent: each occurs {each} times on average.", each=units.ratio(s.M / s.V))


def _largest_share(V: int) -> str:
    """Returns the share of token 0 in tokens that follow Zipf's law, as kernels.embedding.reference draws them."""
    return units.share(math.log(2) / math.log(V + 1))


@cached(16)
def _examples(ladder: str):
    return layer_notes.examples(ladder, PLAIN[ladder], PRESETS[ladder])


COSTS = {FORWARD: forward_cost, BACKWARD: backward_cost}
NOTES = {
    ladder: LadderNotes(
        cost,
        layer_notes.gain(PLAIN[ladder]),
        partial(_examples, ladder),
        mark("Recorded speed-up of our fastest kernel over the plainest:"),
    )
    for ladder, cost in COSTS.items()
}
