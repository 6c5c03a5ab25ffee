"""The bytes on the GPU map of a matrix product: those that the emulator counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import emulator
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.program import INPUT
from kernels.runner import seeded_inputs
from visuals.gemm.gpu_map import predicted_loads, predicted_shared
from visuals.gemm.plan import PLANS, plan_of

DTYPES = {"gemm/wmma": "fp16", "gemm/mma-sync": "fp16", "gemm/dp4a": "int8"}


def tiles_of(rung: str, shape: GemmShape) -> dict[str, int]:
    """Returns small tile sizes of a rung: a set that is compiled ahead, whose blocks are the smallest."""
    sets = find(rung).tile_sets(shape)
    return min(sets, key=lambda t: t.get("BM", t.get("BLOCK", 0)) * t.get("BN", t.get("BLOCK", 0)))


def counters(rung: str, shape: GemmShape, tiles: dict[str, int]) -> dict[str, int]:
    program = find(rung).build(shape, tiles)
    session = emulator.open(program, seeded_inputs(program.of_role(INPUT)))
    session.verify_run()
    return session.counters.total


def shape_of(rung: str, m: int, n: int, k: int, tiles: dict[str, int]) -> GemmShape:
    """Returns a shape of m x n blocks and k sectors along K."""
    rows, cols = tiles.get("BM", tiles.get("BLOCK")), tiles.get("BN", tiles.get("BLOCK"))
    step = {"fp32": 8, "fp16": 16, "int8": 32}[DTYPES.get(rung, "fp32")]
    return GemmShape(m * rows, -(-n * cols // step) * step, k * step, dtype=DTYPES.get(rung, "fp32"))


@pytest.mark.parametrize("rung", PLANS)
@given(m=st.integers(1, 2), n=st.integers(1, 2), k=st.integers(1, 5))
@settings(max_examples=2)
def test_predicted_bytes_are_those_that_the_emulator_counts(rung, m, n, k):
    tiles = tiles_of(rung, GemmShape(64, 64, 64, dtype=DTYPES.get(rung, "fp32")))
    shape = shape_of(rung, m, n, k, tiles)
    plan, total = plan_of(shape, rung, tiles), counters(rung, shape, tiles)
    loads = predicted_loads(shape, plan, rung)
    halves = plan.As is not None and plan.BK * ELEMENT_BYTES[shape.dtype] % 32  # tiles of half a sector
    assert loads == (None if halves else 32 * total["sectors_ld"])
    assert total["bytes_st"] == 4 * shape.M * shape.N


@pytest.mark.parametrize("rung", PLANS)
def test_threads_load_the_predicted_bytes_from_shared_memory(rung):
    tiles = tiles_of(rung, GemmShape(64, 64, 64, dtype=DTYPES.get(rung, "fp32")))
    shape = shape_of(rung, 1, 1, 3, tiles)
    plan = plan_of(shape, rung, tiles)
    if plan.As is None or predicted_shared(shape, plan) is None:
        return
    program = find(rung).build(shape, tiles)
    trace, _ = emulator.trace_launch(program, 0, seeded_inputs(program.of_role(INPUT)))
    r = trace.requests
    shared = np.isin(np.array(trace.buffers)[r.buffer], [layout.buffer for layout in (plan.As, plan.Bs)])
    lanes = np.array([int(mask).bit_count() for mask in r.mask])
    loaded = (lanes * r.width)[shared & ~r.write.astype(bool)].sum()
    blocks = np.prod(plan.grid(shape))
    assert predicted_shared(shape, plan) == loaded * blocks
