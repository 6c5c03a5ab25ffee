"""The scene of a swizzled tile: its cells are where the emulator's copy engine writes and where its wgmma reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator import counters
from kernels.engines.emulator.instructions import warpgroup
from kernels.gemm import hopper
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.hopper import run_hopper
from visuals.gemm.swizzle import (
    PIECES,
    READ,
    ROWS,
    RUNGS,
    SWIZZLES,
    conflicts,
    copying_thread,
    piece_addresses,
    read_passes,
    swizzle_scene,
    why_not,
)
from visuals.scene.payload import payload

SQUARE = GemmShape(64, 64, 64, dtype="fp16")
LOAD = """
  extern __shared__ __align__(1024) char s[]; __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init_barrier(&full, 1); publish_barriers();
    arrive_expecting(&full, bytes);
    load_box(s, &A, 0, 0, &full);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 512; i += blockDim.x) y[i] = ((unsigned short*)s)[i];
"""


@needs_nvrtc
def test_the_tile_is_what_the_copy_engine_writes():
    """The map is that of the kernels. A piece consists of eight halves of one value."""
    s = GemmShape(100, 64, 96, dtype="fp16")
    A = np.repeat(10 * np.arange(s.M)[:, None] + np.arange(s.K // 8), 8, axis=1).astype(np.uint16)
    map_ = hopper.map_a(s, 64)
    args = {
        "unsigned short* y": "y",
        "const __grid_constant__ TensorMap A": map_,
        "int bytes": np.int32(map_.box_bytes),
    }
    tile = run_hopper(LOAD, args, {"A": A, "y": np.zeros(512, np.uint16)}, shared=32 * 1024)["y"]
    scene = swizzle_scene(s, "gemm/wgmma", {"BM": 64, "BN": 64})
    np.testing.assert_array_equal(np.repeat(scene.cells("tile_a"), 8), tile)


@pytest.mark.parametrize("piece", range(READ))
def test_a_product_reads_its_pieces_where_the_emulator_reads_them(piece):
    """The descriptor is that of kernels/cuda/hopper.cuh; its mode 1 is the swizzle of 128 bytes."""
    descriptor = 1024 >> 4 << 32 | 1 << 62
    read = warpgroup.offsets(descriptor, 64, 16, 2, False)[:ROWS]
    np.testing.assert_array_equal(piece_addresses(hopper.SWIZZLE)[:, piece], read[:, 8 * piece])


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_passes_are_those_that_the_emulator_counts(swizzle):
    active = np.zeros((1, 32), bool)
    active[0, :ROWS] = True
    byte = np.zeros((1, 32), np.uint64)
    count = 0
    for piece in range(READ):
        byte[0, :ROWS] = piece_addresses(swizzle)[:, piece]
        count += counters.wavefronts(byte, active, 16)[0]
    passes = read_passes(swizzle)
    assert len(passes) == count and conflicts(swizzle) == count - READ
    assert {(r, p) for one in passes for r, p, _ in one} == {(r, p) for r in range(ROWS) for p in range(READ)}
    for one in passes:
        assert len({column for *_, column in one}) == len(one)  # each bank delivers one word


def test_the_swizzle_removes_every_conflict():
    assert [conflicts(swizzle) for swizzle in SWIZZLES] == [0, READ * (ROWS - 1)]


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("swizzle", SWIZZLES)
@settings(max_examples=8)
@given(M=st.integers(1, 300), N=st.integers(1, 40), K=st.integers(1, 40))
def test_the_scene_shows_every_piece_once_at_any_shape(rung, swizzle, M, N, K):
    s = GemmShape(M, 8 * N, 8 * K, dtype="bf16")
    scene = swizzle_scene(s, rung, {}, swizzle)
    payload(scene)
    inside = scene.tensor("A").values.reshape(min(M, ROWS), min(K, PIECES))
    expected = np.zeros((ROWS, PIECES), np.float32)  # zeros outside the matrix
    expected[: inside.shape[0], : inside.shape[1]] = inside
    tile = scene.cells("tile_a")
    np.testing.assert_array_equal(tile[piece_addresses(swizzle) // 16], expected)
    delivered = scene.cells("passes")
    np.testing.assert_array_equal(np.sort(delivered[np.isfinite(delivered)]), np.sort(expected[:, :READ].ravel()))
    counted = scene.readings[0].values
    assert counted[-1] == 128 * sum(find(rung).default_tiles[n] for n in ("BM", "BN"))
    assert all(scene.caption(t) for t in range(scene.steps))


def test_the_thread_that_copies_is_the_producers_first():
    threads = {}
    for rung in RUNGS:
        (launch,) = find(rung).build(SQUARE, find(rung).default_tiles).steps
        threads[rung] = copying_thread(launch)
    first, ring, *others = threads.values()
    assert (first, ring, set(others)) == (0, 128, {256})


def test_a_shape_that_the_rung_cannot_run_has_a_reason():
    fp32 = GemmShape(64, 64, 64)
    assert "fp16 or bf16" in why_not(fp32, "gemm/wgmma", {})
    assert why_not(SQUARE, "gemm/naive", {})
    assert not why_not(SQUARE, "gemm/wgmma", {})
    with pytest.raises(RuleError):
        swizzle_scene(fp32, "gemm/wgmma", {})
