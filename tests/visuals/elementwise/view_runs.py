"""Runs of the elementwise kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from kernels.elementwise.ladder import LADDERS
from kernels.elementwise.shape import FORMS, KEPT, LAYOUTS, BiasShape, GeluShape, ReluShape
from tests.helpers.view_runs import ViewRun
from visuals.elementwise.views import view_of
from visuals.scene.inputs import rounded_inputs


def fields_of(shape: type) -> list[dict[str, str]]:
    """Returns the other fields of a class of shapes."""
    if issubclass(shape, ReluShape):
        return [{"keep": keep} for keep in KEPT]
    if issubclass(shape, GeluShape):
        return [{"form": form} for form in FORMS]
    return [{"layout": layout} for layout in LAYOUTS] if issubclass(shape, BiasShape) else [{}]


def runs() -> Iterator[ViewRun]:
    for ladder in LADDERS:
        for rung, fields in product(ladder.rungs, fields_of(ladder.shape)):
            if not rung.library:
                shape = ladder.shape(1, 3, 2, 5, **fields)  # 30 elements: the second warp of 64 threads is idle
                tiles = rung.check(shape, {"BLOCK": 64})
                program, name = rung.build(shape, tiles), " ".join((rung.name, *fields.values()))
                inputs = rounded_inputs(ladder, shape, program, 0, 0)
                yield ViewRun(name, view_of(program, shape), shape, tiles, inputs)
