"""Truth of the GEMM pictures: cells, index maps and counts are those of the emulated kernels."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels import runner, sources
from kernels.engines import emulator
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find
from visuals.gemm import plan as gemm_plan
from visuals.gemm.plan import PLANS, plan_of, why_not
from visuals.gemm.scene import gemm_scene
from visuals.scene.payload import payload
from visuals.scene.scene import number

DTYPES = {"gemm/wmma": "fp16", "gemm/mma-sync": "fp16", "gemm/dp4a": "int8"}
NUMPY = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
RUNGS = [rung.name for rung in LADDERS["gemm"].rungs if rung.name in PLANS]
SHARED = [name for name in RUNGS if name not in ("gemm/uncoalesced", "gemm/naive")]


def matrices(s: GemmShape, seed: int = 0, whole: bool = True):
    """A, B, C0 of the kernel's types: small whole numbers, whose sums are exact, or any."""
    rng = np.random.default_rng(seed)
    of = NUMPY[s.dtype]
    out = [rng.integers(-4, 5, size).astype(of) for size in ((s.M, s.K), (s.K, s.N))]
    if not whole and s.dtype != "int8":
        out = [rng.normal(size=size).astype(of) for size in ((s.M, s.K), (s.K, s.N))]
    return *out, rng.integers(-4, 5, (s.M, s.N)).astype("int32" if s.dtype == "int8" else "float32")


def smallest(rung: str) -> dict[str, int]:
    """The smallest tile sizes that a rung may have."""
    of = find(rung)
    sizes = [
        dict(zip(of.tiles, values, strict=True))
        for values in itertools.product(*map(sorted, of.tiles.values()))
    ]
    shape = GemmShape(16, 16, 16, dtype=DTYPES.get(rung, "fp32"))
    return next(t for t in sizes if not any(of.rules(shape, t)))


def emulated(s: GemmShape, rung: str, tiles, A, B, C0):
    inputs = {"A": A, "B": B} | ({"C0": C0} if s.beta else {})
    return runner.run(rung, s, inputs=inputs, engine="emulator", tiles=tiles)


def one_block(s: GemmShape, rung: str, tiles, A, B, C0):
    """(trace, counters, program) of block 0 alone."""
    inputs = {"A": A, "B": B} | ({"C0": C0} if s.beta else {})
    program = find(rung).build(s, find(rung).check(s, tiles))
    alone = dataclasses.replace(program, steps=(dataclasses.replace(program.steps[0], grid=(1, 1, 1)),))
    return emulator.trace_launch(alone, 0, inputs)


@st.composite
def asked(draw, rungs=tuple(RUNGS), most=40):
    """A rung, tile sizes it may have, and a shape with all its remainders."""
    rung = draw(st.sampled_from(rungs))
    size = st.integers(1, most)
    dtype = DTYPES.get(rung, "fp32")
    alpha, beta = draw(st.sampled_from([(1, 0), (1, 1), (2, 0), (-1, 3)]))
    s = GemmShape(draw(size), draw(size), draw(size), alpha=alpha, beta=beta, dtype=dtype)
    return rung, smallest(rung), s


# -- cells -----------------------------------------------------------------------------------------
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked())
def test_the_last_picture_is_what_the_kernel_computed(ask):
    rung, tiles, s = ask
    A, B, C0 = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B, C0)
    out = emulated(s, rung, tiles, A, B, C0).output
    np.testing.assert_array_equal(scene.cells("C"), out.astype("f4").ravel())
    for product in scene.matmuls:  # what the browser sums for a hovered cell is that cell
        total = scene.cells("A").reshape(s.M, s.K) @ scene.cells("B").reshape(s.K, s.N)
        rest = 0 if product.rest is None else product.rest.reshape(total.shape)
        np.testing.assert_array_equal(total + rest, out)


@pytest.mark.parametrize("rung", RUNGS)
def test_sums_are_rounded_as_the_kernel_rounds_them(rung):
    s = GemmShape(19, 21, 35, dtype=DTYPES.get(rung, "fp32"))
    A, B, C0 = matrices(s, whole=False)
    scene = gemm_scene(s, rung, smallest(rung), A, B)
    out = emulated(s, rung, smallest(rung), A, B, C0).output
    np.testing.assert_array_equal(scene.cells("C"), out.astype("f4").ravel())


@pytest.mark.parametrize("block", [(0, 0), (1, 0), (2, 3)])
def test_any_block_can_be_watched(block):
    s, rung, tiles = GemmShape(29, 23, 20), "gemm/shared-tile", {"BM": 8, "BN": 8, "BK": 8}
    A, B, _ = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B, block=block)
    np.testing.assert_array_equal(scene.cells("C"), (A @ B).ravel())
    first = f"rows {8 * block[1]} to {min(8 * block[1] + 7, 28)}, columns {8 * block[0]} to {min(8 * block[0] + 7, 22)}"
    assert first in scene.caption(0) and f"Block {block[1] * 3 + block[0] + 1} of 12 " in scene.caption(0)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_part_of_a_large_product_is_true_and_says_which(rung):
    s = GemmShape(300, 520, 200, dtype=DTYPES.get(rung, "fp32"))
    A, B, _ = matrices(s)
    scene = gemm_scene(s, rung, {}, A, B)
    C = scene.tensor("C")
    product = A.astype(float) @ B.astype(float)
    np.testing.assert_array_equal(scene.cells("C"), product[: C.rows, : C.cols].ravel())
    assert C.partial and f"part 0–{C.rows - 1}, 0–{C.cols - 1} of 300 × 520" in C.note
    rest = [t for t in range(scene.steps) if scene.captions.kind[t] == gemm_plan.REST]
    assert len(rest) == 1
    acc = scene.cells("acc", rest[0])
    plan = plan_of(s, rung, {})
    np.testing.assert_array_equal(acc, product[plan.rows[0][:, None], plan.cols[0]].ravel())


# -- index maps ------------------------------------------------------------------------------------
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked())
def test_each_thread_stores_the_cells_it_is_said_to_own(ask):
    rung, tiles, s = ask
    if rung in ("gemm/wmma", "gemm/mma-sync"):
        return  # their sums go through shared memory on their way: see the warps' own cells below
    s = s.with_(alpha=1.0, beta=0.0)
    A, B, C0 = matrices(s)
    trace, _ = one_block(s, rung, tiles, A, B, C0)
    plan = plan_of(s, rung, tiles)
    at = trace.write & (np.array(trace.buffers)[trace.buffer] == "C")
    row, col = np.divmod(trace.element[at].astype(int), s.N)
    assert at.any() and (plan.owner_of()[row, col] == trace.thread[at]).all()
    inside = (min(s.M, plan.BM), min(s.N, plan.BN))
    assert len(set(zip(row, col, strict=True))) == at.sum() == inside[0] * inside[1]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked(rungs=tuple(SHARED)))
def test_owners_read_from_shared_memory_what_they_are_said_to(ask):
    """Each thread (each warp, of tensor cores) reads its rows of tile_a and columns of tile_b, all of them, no others."""
    rung, tiles, s = ask
    A, B, C0 = matrices(s)
    plan = plan_of(s, rung, tiles)
    trace, _ = one_block(s, rung, tiles, A, B, C0)
    owner, byte = shared_reads(plan, trace)
    for name, layout, of in (("tile_a", plan.As, plan.rows), ("tile_b", plan.Bs, plan.cols)):
        mine = tile_bytes(name, layout, plan, owner, byte)
        for at in {0, len(of) // 2, len(of) - 1}:
            cells = layout.at[of[at]] if name == "tile_a" else layout.at[:, of[at]]
            assert set(mine[at]) == set(np.unique(cells.ravel() * layout.item // 4))


def shared_reads(plan, trace):
    """(owner, byte of the shared buffer, buffer's name) of every word that threads load from shared memory,
    that of the sums on their way to C left out."""
    text = sources.text(plan.file).splitlines()
    ours = np.array([of is not None and of.file == plan.file.rpartition("/")[2] for of in trace.lines])
    number = [of.number if mine else 0 for of, mine in zip(trace.lines, ours, strict=True)]
    last = np.array(["tile_c[" in text[n - 1] if n else False for n in number])[trace.line[trace.step]]
    names = np.array(trace.buffers)[trace.buffer]
    at = ~trace.write & ~last & np.isin(names, ("tile_a", "tile_b", "shared"))
    owner = trace.thread[at] // (32 if plan.owner == "warp" else 1)
    return owner, np.char.add(
        np.char.add(names[at], "@"), (trace.element[at].astype(np.int64) * 4).astype(str)
    )


def tile_bytes(name, layout, plan, owner, places):
    """By owner: words of a tile, counted from its start, that the owner reads in any stage."""
    out = {}
    for reader, place in zip(owner, places, strict=True):
        buffer, byte = place.split("@")
        past = int(byte) - layout.start
        if layout.stride and 0 <= past < plan.stages * layout.stride:
            past %= layout.stride
        size = layout.rows * layout.cols * layout.item
        if buffer == layout.buffer and 0 <= past < size:
            out.setdefault(int(reader), set()).add(past // 4)
    return out


# -- counts ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", ["gemm/uncoalesced", "gemm/naive", *SHARED])
def test_reads_told_are_the_bytes_that_lanes_asked_for(rung):
    tiles = smallest(rung)
    plan = plan_of(GemmShape(8, 8, 8, dtype=DTYPES.get(rung, "fp32")), rung, tiles)
    s = GemmShape(plan.BM, plan.BN, 2 * max(plan.BK, 16), dtype=DTYPES.get(rung, "fp32"))
    A, B, C0 = matrices(s)
    trace, counters = one_block(s, rung, tiles, A, B, C0)
    scene = gemm_scene(s, rung, tiles, A, B)
    told = {r.label: int(r.values[-1]) for r in scene.readings}
    item = np.dtype(NUMPY[s.dtype]).itemsize
    assert told["values of A and B read from global memory"] * item == counters.total["bytes_ld"]
    assert told["multiply-adds"] == s.macs
    if plan.As and plan.owner == "thread":
        words, _ = shared_reads(plan, trace)
        assert told["from shared memory"] == len(words) * (4 if rung == "gemm/dp4a" else 1)


@pytest.mark.parametrize("rung", SHARED)
def test_each_value_is_read_from_shared_memory_as_often_as_the_caption_says(rung):
    tiles = smallest(rung)
    s = GemmShape(16, 16, 16, dtype=DTYPES.get(rung, "fp32"))
    plan = plan_of(s, rung, tiles)
    A, B, C0 = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B)
    load = int(np.flatnonzero(scene.captions.kind == gemm_plan.LOAD_A)[0])
    owner, places = shared_reads(plan, one_block(s, rung, tiles, A, B, C0)[0])
    words = tile_bytes("tile_a", plan.As, plan, owner, places)
    readers = sum(0 in found for found in words.values())  # who reads the first word of tile_a
    assert f"then {readers} times from shared memory" in scene.caption(load)


# -- what is said ----------------------------------------------------------------------------------
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked())
def test_every_step_has_its_words_and_its_line(ask):
    rung, tiles, s = ask
    A, B, C0 = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B, C0)
    for t in range(scene.steps):
        assert "{" not in scene.caption(t) and "](" not in scene.caption(t)
    lines = scene.source.text.splitlines()
    multiply = int(np.flatnonzero(scene.captions.kind == gemm_plan.MULTIPLY)[0])
    lit = lines[int(scene.source.lines[multiply]) - scene.source.first]
    assert any(word in lit for word in ("sum", "multiply", "mma_sync", "__dp4a"))
    first = scene.cells("acc", multiply)
    if len(first) == 1:
        assert f"sum is now {number(first[0])}." in scene.caption(multiply)


def test_why_there_is_no_scene_is_said_in_words():
    s = GemmShape(64, 64, 64)
    assert why_not(s, "gemm/naive", {}) == ""
    assert "cuBLAS" in why_not(s, "gemm/cublas", {}) and "source is not open" in why_not(s, "gemm/cublas", {})
    assert "dtype must be" in why_not(s, "gemm/dp4a", {})
    assert "must be one of" in why_not(s, "gemm/shared-tile", {"BM": 7})
    with pytest.raises(ValueError, match="source is not open"):
        gemm_scene(s, "gemm/cublas", {}, *matrices(s))


# -- sizes -----------------------------------------------------------------------------------------
WHOLE = (
    "gemm/warp-tile",
    *DTYPES,
)  # their scenes are made of all terms however many: a sum of each takes long


@pytest.mark.parametrize("key", GEMM_PRESETS)
def test_every_preset_makes_a_small_scene_on_every_rung(key):
    s = GEMM_PRESETS[key].shape
    if s.M * s.K + s.K * s.N > 1 << 26:
        s = s.with_(M=min(s.M, 512), N=min(s.N, 512))  # the part shown is the same
    A, B, C0 = matrices(s)
    for rung in RUNGS:
        if why_not(s, rung, {}):
            continue
        K = s.K if rung in WHOLE else min(s.K, 4096)  # beyond, what is shown is the same
        meta, block = payload(gemm_scene(s.with_(K=K), rung, {}, A[:, :K], B[:K], C0))
        most = (
            600_000 if rung in ("gemm/wmma", "gemm/mma-sync") else 230_000 if rung == "gemm/dp4a" else 170_000
        )
        assert len(block) + len(json.dumps(meta)) < most, rung
