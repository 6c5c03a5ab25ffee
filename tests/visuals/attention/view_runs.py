"""Runs of the attention kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from visuals.attention.scene import VIEWS

SHAPES = (AttentionShape(1, 1, 16, 8, causal=1), AttentionShape(1, 1, 13, 4), AttentionShape(1, 1, 300, 64, causal=1))
SMALL = {"TILE": 8, "BLOCK": 128, "Br": 16, "Bc": 8, "WM": 16}


def runs() -> Iterator[ViewRun]:
    for rung, shown in VIEWS.items():
        sizes = {name: size for name, size in SMALL.items() if size in find(rung).tiles.get(name, ())}
        for s in SHAPES:
            shape = s.with_(dtype="fp16") if rung.endswith("mma") else s
            tiles = find(rung).check(shape, sizes)
            head = shown.head(shape, tiles)
            yield seeded(rung, shown.view(head, tiles), head.run, tiles, blocks=head.chosen)
