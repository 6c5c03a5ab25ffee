"""Runs of decoding in which every step of its view occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from visuals.attention.decode_views import view_of
from visuals.scene.compiler.program import first_blocks

RUNG = "attention/flash-decode"
SMALL = {"PART": 8, "THREADS": 32, "BATCH": 1}


def runs() -> Iterator[ViewRun]:
    for s in (ATTENTION_PRESETS["decode-toy"].shape, ATTENTION_PRESETS["window-toy"].shape.with_(mask="bias")):
        sizes = find(RUNG).check(s, SMALL)
        yield seeded(RUNG, view_of(s, sizes, 1), s, sizes, blocks=first_blocks(1))
