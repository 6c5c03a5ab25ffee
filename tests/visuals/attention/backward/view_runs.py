"""Runs of the kernels of attention's backward pass in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from visuals.attention.backward.scene import SCENES, head_of

TOY = AttentionBackwardShape(1, 1, 32, 8, causal=1)
SMALLEST = {"TILE": 8, "BLOCK": 128, "Br": 8, "Bc": 16}
HALVES = {"Br": 16, "Bc": 16, "WM": 16}


def of_rung(rung: str) -> tuple[AttentionBackwardShape, dict[str, int]]:
    """Returns a causal shape with several tiles of queries and of keys, and the tile sizes."""
    s, sizes = (TOY.with_(dtype="fp16"), HALVES) if rung.endswith("mma") else (TOY, SMALLEST)
    return s, {name: size for name, size in sizes.items() if name in find(rung).tiles}


def runs() -> Iterator[ViewRun]:
    for rung, view_of in SCENES.items():
        s, tiles = of_rung(rung)
        sizes = find(rung).check(s, tiles)
        yield seeded(rung, view_of(head_of(s, sizes), sizes), s, sizes)
