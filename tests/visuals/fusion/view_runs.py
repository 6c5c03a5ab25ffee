"""Runs of the chains' kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.fusion.ladder import PLANS
from kernels.fusion.shape import ChainShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun
from visuals.fusion.plan import inputs
from visuals.fusion.views import launches_of, view_of

CHAINS = (
    "conv:K=2:R=3 bias bn relu add",
    "bn relu add maxpool:2 bias",
    "relu avgpool:2:pad=1 bn gap",
    "bn add relu gap bias",
    "relu bias relu add relu bias bn add",
)


def runs() -> Iterator[ViewRun]:
    for rung, plan in PLANS.items():
        for chain in CHAINS:
            s = ChainShape(1, 2, 4, 4, chain)
            tiles = find(rung).default_tiles
            if not any(find(rung).rules(s, tiles)):
                yield ViewRun(f"{rung} {chain}", view_of(launches_of(plan(s, tiles))), s, tiles, inputs(s))
