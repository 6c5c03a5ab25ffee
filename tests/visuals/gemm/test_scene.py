"""GEMM scenes: cells, index maps and counts equal those of the emulated kernels."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import runner, sources
from kernels.engines import emulator
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find
from visuals.gemm import plan as gemm_plan
from visuals.gemm.plan import PLANS, plan_of, why_not
from visuals.gemm.scene import gemm_scene
from visuals.gemm.steps import side
from visuals.scene.payload import payload
from visuals.scene.scene import number

DTYPES = {"gemm/wmma": "fp16", "gemm/mma-sync": "fp16", "gemm/dp4a": "int8"}
NUMPY = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
RUNGS = [rung.name for rung in LADDERS["gemm"].rungs if rung.name in PLANS]
SHARED = [name for name in RUNGS if name not in ("gemm/uncoalesced", "gemm/naive")]


def matrices(s: GemmShape, seed: int = 0, whole: bool = True):
    """Returns A, B, C0 of the kernel's types: small whole numbers, whose sums are exact, or normally distributed ones."""
    rng = np.random.default_rng(seed)
    dtype = NUMPY[s.dtype]
    out = [rng.integers(-4, 5, size).astype(dtype) for size in ((s.M, s.K), (s.K, s.N))]
    if not whole and s.dtype != "int8":
        out = [rng.normal(size=size).astype(dtype) for size in ((s.M, s.K), (s.K, s.N))]
    return *out, rng.integers(-4, 5, (s.M, s.N)).astype("int32" if s.dtype == "int8" else "float32")


def smallest(rung: str) -> dict[str, int]:
    """Returns the smallest tile sizes that a rung allows."""
    found = find(rung)
    sizes = [
        dict(zip(found.tiles, values, strict=True)) for values in itertools.product(*map(sorted, found.tiles.values()))
    ]
    shape = GemmShape(16, 16, 16, dtype=DTYPES.get(rung, "fp32"))
    return next(t for t in sizes if not any(found.rules(shape, t)))


def emulated(s: GemmShape, rung: str, tiles, A, B, C0):
    inputs = {"A": A, "B": B} | ({"C0": C0} if s.beta else {})
    return runner.run(rung, s, inputs=inputs, engine="emulator", tiles=tiles)


def one_block(s: GemmShape, rung: str, tiles, A, B, C0):
    """Returns trace and counters of block 0 alone."""
    inputs = {"A": A, "B": B} | ({"C0": C0} if s.beta else {})
    program = find(rung).build(s, find(rung).check(s, tiles))
    single_block = dataclasses.replace(program, steps=(dataclasses.replace(program.steps[0], grid=(1, 1, 1)),))
    return emulator.trace_launch(single_block, 0, inputs)


@st.composite
def cases(draw, rungs=tuple(RUNGS), max_size=40):
    """Draws a rung, its smallest tile sizes, and a shape of any size up to max_size."""
    rung = draw(st.sampled_from(rungs))
    size = st.integers(1, max_size)
    dtype = DTYPES.get(rung, "fp32")
    alpha, beta = draw(st.sampled_from([(1, 0), (1, 1), (2, 0), (-1, 3)]))
    s = GemmShape(draw(size), draw(size), draw(size), alpha=alpha, beta=beta, dtype=dtype)
    return rung, smallest(rung), s


# -- cells -----------------------------------------------------------------------------------------
@settings(max_examples=8)
@given(cases())
def test_last_step_equals_kernel_output(case):
    rung, tiles, s = case
    A, B, C0 = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B, C0)
    out = emulated(s, rung, tiles, A, B, C0).output
    np.testing.assert_array_equal(scene.cells("C"), out.astype("f4").ravel())
    for product in scene.matmuls:  # the browser's sum for a hovered cell equals that cell
        total = scene.cells("A").reshape(s.M, s.K) @ scene.cells("B").reshape(s.K, s.N)
        rest = 0 if product.rest is None else product.rest.reshape(total.shape)
        np.testing.assert_array_equal(total + rest, out)


@pytest.mark.parametrize("rung", RUNGS)
def test_rounding_equals_the_kernels(rung):
    s = GemmShape(19, 21, 35, dtype=DTYPES.get(rung, "fp32"))
    A, B, C0 = matrices(s, whole=False)
    scene = gemm_scene(s, rung, smallest(rung), A, B)
    out = emulated(s, rung, smallest(rung), A, B, C0).output
    np.testing.assert_array_equal(scene.cells("C"), out.astype("f4").ravel())


@pytest.mark.parametrize("block", [(0, 0), (1, 0), (2, 3)])
def test_scene_of_any_block(block):
    s, rung, tiles = GemmShape(29, 23, 20), "gemm/shared-tile", {"BM": 8, "BN": 8, "BK": 8}
    A, B, _ = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B, block=block)
    np.testing.assert_array_equal(scene.cells("C"), (A @ B).ravel())
    first = (
        f"rows {8 * block[1]} to {min(8 * block[1] + 7, 28)} and columns {8 * block[0]} to {min(8 * block[0] + 7, 22)}"
    )
    assert first in scene.caption(0) and f"Block {block[1] * 3 + block[0]} computes " in scene.caption(0)


@pytest.mark.parametrize("rung", RUNGS)
def test_part_of_a_large_product_is_correct_and_named(rung):
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
@settings(max_examples=6)
@given(cases())
def test_threads_store_the_cells_of_the_plan(case):
    rung, tiles, s = case
    if rung in ("gemm/wmma", "gemm/mma-sync"):
        return  # their sums pass through shared memory: see the test of the reads below
    s = s.with_(alpha=1.0, beta=0.0)
    A, B, C0 = matrices(s)
    trace, _ = one_block(s, rung, tiles, A, B, C0)
    plan = plan_of(s, rung, tiles)
    stored = trace.write & (np.array(trace.buffers)[trace.buffer] == "C")
    row, col = np.divmod(trace.element[stored].astype(int), s.N)
    assert stored.any() and (plan.owner_of()[row, col] == trace.thread[stored]).all()
    inside = (min(s.M, plan.BM), min(s.N, plan.BN))
    assert len(set(zip(row, col, strict=True))) == stored.sum() == inside[0] * inside[1]


@settings(max_examples=6)
@given(cases(rungs=tuple(SHARED)))
def test_owners_read_the_shared_memory_of_the_plan(case):
    """Each thread (with tensor cores each warp) reads all its rows of tile_a and columns of tile_b, and no others."""
    rung, tiles, s = case
    A, B, C0 = matrices(s)
    plan = plan_of(s, rung, tiles)
    trace, _ = one_block(s, rung, tiles, A, B, C0)
    owner, byte = shared_reads(plan, trace)
    for name, layout, indices in (("tile_a", plan.As, plan.rows), ("tile_b", plan.Bs, plan.cols)):
        words = tile_bytes(name, layout, plan, owner, byte)
        for at in {0, len(indices) // 2, len(indices) - 1}:
            cells = layout.at[indices[at]] if name == "tile_a" else layout.at[:, indices[at]]
            assert set(words[at]) == set(np.unique(cells.ravel() * layout.item // 4))


def shared_reads(plan, trace):
    """Returns (owner, "buffer@byte") of every word that threads load from shared memory, except the sums on their way to
    C."""
    text = sources.text(plan.file).splitlines()
    in_file = np.array(
        [source_line is not None and source_line.file == plan.file.rpartition("/")[2] for source_line in trace.lines]
    )
    number = [source_line.number if is_ours else 0 for source_line, is_ours in zip(trace.lines, in_file, strict=True)]
    in_epilogue = np.array(["tile_c[" in text[n - 1] if n else False for n in number])[trace.line[trace.step]]
    names = np.array(trace.buffers)[trace.buffer]
    selected = ~trace.write & ~in_epilogue & np.isin(names, ("tile_a", "tile_b", "shared"))
    owner = trace.thread[selected] // (32 if plan.owner == "warp" else 1)
    return owner, np.char.add(
        np.char.add(names[selected], "@"), (trace.element[selected].astype(np.int64) * 4).astype(str)
    )


def tile_bytes(name, layout, plan, owner, bytes_read):
    """Returns by owner the words of a tile, counted from its start, that it reads in any stage."""
    words = {}
    for reader, byte_read in zip(owner, bytes_read, strict=True):
        buffer, byte = byte_read.split("@")
        offset = int(byte) - layout.start
        if layout.stride and 0 <= offset < plan.stages * layout.stride:
            offset %= layout.stride
        size = layout.rows * layout.cols * layout.item
        if buffer == layout.buffer and 0 <= offset < size:
            words.setdefault(int(reader), set()).add(offset // 4)
    return words


# -- counts ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", ["gemm/uncoalesced", "gemm/naive", *SHARED])
def test_readings_equal_the_counters(rung):
    tiles = smallest(rung)
    plan = plan_of(GemmShape(8, 8, 8, dtype=DTYPES.get(rung, "fp32")), rung, tiles)
    s = GemmShape(plan.BM, plan.BN, 2 * max(plan.BK, 16), dtype=DTYPES.get(rung, "fp32"))
    A, B, C0 = matrices(s)
    trace, counters = one_block(s, rung, tiles, A, B, C0)
    scene = gemm_scene(s, rung, tiles, A, B)
    readings = {r.label: int(r.values[-1]) for r in scene.readings}
    item = np.dtype(NUMPY[s.dtype]).itemsize
    assert readings["values of A and B read from global memory"] * item == counters.total["bytes_ld"]
    assert readings["multiply-adds"] == s.macs
    if plan.As and plan.owner == "thread":
        words, _ = shared_reads(plan, trace)
        assert readings["values read from shared memory"] == len(words) * (4 if rung == "gemm/dp4a" else 1)


@pytest.mark.parametrize("rung", SHARED)
def test_caption_counts_the_shared_memory_reads(rung):
    tiles = smallest(rung)
    s = GemmShape(16, 16, 16, dtype=DTYPES.get(rung, "fp32"))
    plan = plan_of(s, rung, tiles)
    A, B, C0 = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B)
    load = int(np.flatnonzero(scene.captions.kind == gemm_plan.LOAD_A)[0])
    owner, bytes_read = shared_reads(plan, one_block(s, rung, tiles, A, B, C0)[0])
    words = tile_bytes("tile_a", plan.As, plan, owner, bytes_read)
    readers = sum(0 in found for found in words.values())  # owners that read the first word of tile_a
    verb = f"{plan.owner} reads" if readers == 1 else f"{plan.owner}s read"
    assert f"Then {readers} {verb} it from shared memory." in scene.caption(load)


# -- captions --------------------------------------------------------------------------------------
@settings(max_examples=10)
@given(cases())
def test_every_step_has_a_caption_and_a_line(case):
    rung, tiles, s = case
    A, B, C0 = matrices(s)
    scene = gemm_scene(s, rung, tiles, A, B, C0)
    for t in range(scene.steps):
        assert "{" not in scene.caption(t) and "](" not in scene.caption(t)
    lines = scene.source.text.splitlines()
    multiply = int(np.flatnonzero(scene.captions.kind == gemm_plan.MULTIPLY)[0])
    line = lines[int(scene.source.lines[multiply]) - scene.source.first]
    assert any(word in line for word in ("sum", "multiply", "mma_sync", "__dp4a"))
    first = scene.cells("acc", multiply)
    if len(first) == 1:
        assert f"sum is now {number(first[0])}." in scene.caption(multiply)


@pytest.mark.parametrize("rung", ["gemm/double-buffer", "gemm/warp-tile", "gemm/register-pipeline", "gemm/mma-sync"])
def test_first_copy_is_waited_for_and_later_ones_run_ahead(rung):
    s = GemmShape(64, 64, 64, dtype=DTYPES.get(rung, "fp32"))
    scene = gemm_scene(s, rung, smallest(rung), *matrices(s))
    loads = [scene.caption(t) for t in range(scene.steps) if scene.caption(t).startswith("Tile ")]
    first = [text for text in loads if text.startswith("Tile 1 of ")]
    later = [text for text in loads if text not in first]
    assert len(first) == 2 and all("wait for this first copy" in text for text in first)
    assert later and all("runs while earlier tiles are multiplied" in text for text in later)
    assert not any("earlier tiles" in text for text in first)


@pytest.mark.parametrize(
    ("rung", "tiles", "says"),
    [
        ("gemm/mma-sync", {}, "Its tile of 256 × 128 is larger than this part of C."),
        ("gemm/double-buffer", {}, "Its tile of 128 × 128 is larger than this part of C."),
        ("gemm/double-buffer", {"BM": 64, "BN": 64}, ""),
        ("gemm/naive", {}, ""),
    ],
)
def test_multiply_adds_of_zeros_are_named(rung, tiles, says):
    s = GemmShape(64, 64, 64, dtype=DTYPES.get(rung, "fp32"))
    scene = gemm_scene(s, rung, tiles, *matrices(s))
    label, added = scene.readings[-1].label, int(scene.readings[-1].values[-1])
    assert says in scene.caption(0) and ("filled with zeros" in scene.caption(0)) == bool(says)
    assert ("zeros" in label) == (added > s.macs) == bool(says)


def test_one_other_block_is_in_the_singular():
    s = GemmShape(16, 8, 8)
    A, B, C0 = matrices(s)
    scene = gemm_scene(s, "gemm/shared-tile", {"BM": 8, "BN": 8, "BK": 8}, A, B, C0)
    assert scene.caption(scene.steps - 1).startswith("The other block computes its tile")


@pytest.mark.parametrize(
    ("alpha", "beta", "says"),
    [
        (1, 0, ""),
        (2, 0, "is 2 times the sum."),
        (1, 3, "is the sum plus 3 times C0."),
        (-1, 3, "is −1 times the sum plus 3 times C0."),
    ],
)
def test_caption_of_the_store_has_alpha_and_beta(alpha, beta, says):
    s = GemmShape(8, 8, 8, alpha=alpha, beta=beta)
    scene = gemm_scene(s, "gemm/naive", smallest("gemm/naive"), *matrices(s))
    store = int(np.flatnonzero(scene.captions.kind == gemm_plan.STORE)[0])
    assert scene.caption(store) == "Thread 0 stores its sum to C." + (f" Each stored value {says}" if says else "")


@pytest.mark.parametrize("rung", ["shared-tile", "register-tile-2d", "vectorized", "bank-free", "double-buffer"])
def test_cells_of_tiles_have_the_kernels_index(rung):
    """A tile is drawn as the kernel's array: the same rows and columns, and an index of the buffer if it has several."""
    rung, s = f"gemm/{rung}", GemmShape(64, 64, 64)
    for tiles in (smallest(rung), find(rung).default_tiles):
        scene, plan = gemm_scene(s, rung, tiles, *matrices(s)), plan_of(s, rung, tiles)
        for name, layout in (("tile_a", plan.As), ("tile_b", plan.Bs)):
            tensor, sizes = scene.tensor(name), plan.tiles | {"PAD": 128 // plan.BK}
            declared = re.search(rf"{name}(?: = \(float \(\*\)|)\[([^\]]+)\]\[([^\]]+)\][;)]", sources.text(plan.file))
            assert [eval(size.replace("/", "//"), {}, sizes) for size in declared.groups()] == [
                layout.rows,
                layout.cols,
            ]
            cut = layout.cut(*shown_part(tensor, plan))
            assert (tensor.rows, tensor.cols) == (cut.rows, cut.cols) and tensor.symbol == name
            rows, cols = cut.at.shape
            np.testing.assert_array_equal(np.divmod(cut.at, cut.cols), np.divmod(layout.at[:rows, :cols], layout.cols))
            assert bool(tensor.plane_name) == (plan.stages > 1)


def shown_part(tensor, plan):
    """Returns the rows and columns of a tile that its tensor shows."""
    rows, cols = side(plan)
    return (rows, plan.BK) if tensor.name == "tile_a" else (plan.BK, cols)


def test_why_not_gives_a_reason():
    s = GemmShape(64, 64, 64)
    assert why_not(s, "gemm/naive", {}) == ""
    assert "cuBLAS" in why_not(s, "gemm/cublas", {}) and "source is not open" in why_not(s, "gemm/cublas", {})
    assert "dtype must be" in why_not(s, "gemm/dp4a", {})
    assert "must be one of" in why_not(s, "gemm/shared-tile", {"BM": 7})
    with pytest.raises(ValueError, match="source is not open"):
        gemm_scene(s, "gemm/cublas", {}, *matrices(s))


# -- sizes -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["gpt2-mlp-down", "gpt2-mlp-down-fp16", "square-4096-int8"])  # the largest of each type
def test_payloads_are_small(key):
    s = GEMM_PRESETS[key].shape
    A, B, C0 = matrices(s)
    for rung in RUNGS:
        if why_not(s, rung, {}):
            continue
        meta, block = payload(gemm_scene(s, rung, {}, A, B, C0))
        max_bytes = 120_000 if rung in ("gemm/wmma", "gemm/mma-sync") else 60_000
        assert len(block) + len(json.dumps(meta)) < max_bytes, rung
