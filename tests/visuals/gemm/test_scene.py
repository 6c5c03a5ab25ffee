"""GEMM scenes: cells and counts equal those of the emulated kernels."""

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
from visuals.gemm.plan import PLANS, plan_of, why_not
from visuals.gemm.scene import folds, gemm_scene
from visuals.scene.payload import payload
from visuals.scene.scene import number

DTYPES = {"gemm/wmma": "fp16", "gemm/mma-sync": "fp16", "gemm/dp4a": "int8"}
NUMPY = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
RUNGS = [rung.name for rung in LADDERS["gemm"].rungs if rung.name in PLANS]
FLOATS = [name for name in RUNGS if "BK" in find(name).tiles and name not in DTYPES]  # with tiles
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


@pytest.mark.parametrize("rung", RUNGS)
def test_part_of_a_large_product_is_correct_and_named(rung):
    s = GemmShape(300, 520, 200, dtype=DTYPES.get(rung, "fp32"))
    A, B, _ = matrices(s)
    scene = gemm_scene(s, rung, {}, A, B)
    C, terms = scene.tensor("C"), scene.tensor("A").cols
    product = A[:, :terms].astype(float) @ B[:terms].astype(float)
    np.testing.assert_array_equal(scene.cells("C"), product[: C.rows, : C.cols].ravel())
    assert C.partial and f"part 0–{C.rows - 1}, 0–{C.cols - 1} of 300 × 520" in C.note
    assert f"cut to {terms} of 200 terms" in scene.order_note and not scene.matmuls
    captions = [scene.caption(t) for t in range(scene.steps)]
    assert any(f"These sums have {terms} of 200 terms" in text.replace("these", "These") for text in captions)


# -- counts ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", RUNGS)
def test_the_values_read_from_global_memory_are_those_of_the_measured_build(rung):
    tiles = smallest(rung)
    plan = plan_of(GemmShape(8, 8, 8, dtype=DTYPES.get(rung, "fp32")), rung, tiles)
    s = GemmShape(plan.BM, plan.BN, 2 * max(plan.BK, 16), dtype=DTYPES.get(rung, "fp32"))
    A, B, C0 = matrices(s)
    _, counters = one_block(s, rung, tiles, A, B, C0)
    reading = gemm_scene(s, rung, tiles, A, B).readings[0]
    assert (reading.label, reading.kind) == ("values of A and B read from global memory", "counted")
    assert reading.values[-1] * np.dtype(NUMPY[s.dtype]).itemsize == counters.total["bytes_ld"]


@pytest.mark.parametrize("rung", [*FLOATS, "gemm/dp4a"])
def test_the_values_read_from_shared_memory_are_those_of_each_term(rung):
    tiles = find(rung).default_tiles | smallest(rung)
    s = GemmShape(tiles["BM"], tiles["BN"], 2 * tiles["BK"], dtype=DTYPES.get(rung, "fp32"))
    reading = gemm_scene(s, rung, smallest(rung), *matrices(s)[:2]).readings[1]
    TM, TN = tiles.get("TM", 1), tiles.get("TN", 1)
    assert reading.values[-1] == s.M // TM * (s.N // TN) * (TM + TN) * s.K


def test_a_sentence_says_how_many_threads_read_a_value_of_a_tile():
    s = GemmShape(32, 32, 32)
    scene = gemm_scene(s, "gemm/shared-tile", {"BM": 8, "BN": 32, "BK": 32}, *matrices(s))
    of_A, of_B = (scene.caption(t) for t in (1, 2))
    assert "of A to shared memory" in of_A and "Then 32 threads read" in of_A
    assert "of B to shared memory" in of_B and "Then 8 threads read" in of_B


@pytest.mark.parametrize("rung", FLOATS)
def test_a_tile_is_read_once_from_global_memory_in_the_step_that_says_so(rung):
    tiles = find(rung).default_tiles | smallest(rung)
    s = GemmShape(tiles["BM"], tiles["BN"], tiles["BK"])
    scene = gemm_scene(s, rung, smallest(rung), *matrices(s))
    captions = [scene.caption(t) for t in range(scene.steps)]
    for name, size in (("A", s.M * s.K), ("B", s.K * s.N)):
        (t,) = (t for t, text in enumerate(captions) if f" of {name} to shared memory" in text)
        assert f"Values read from global memory: {size}." in captions[t]
        read = next(read for read in scene.reads if read.source == name)
        assert read.start[t + 1] - read.start[t] == size


def test_the_sums_of_a_warp_are_where_they_are_stored():
    s = GemmShape(64, 64, 32, dtype="fp16")
    scene = gemm_scene(s, "gemm/mma-sync", smallest("gemm/mma-sync"), *matrices(s))
    acc = scene.tensor("acc")
    C = scene.cells("C").reshape(64, 64)[: acc.rows, : acc.cols]
    np.testing.assert_array_equal(scene.cells("acc").reshape(acc.rows, acc.cols), C)


# -- captions and steps ----------------------------------------------------------------------------
@settings(max_examples=10)
@given(cases())
def test_every_step_has_a_caption_and_the_sum_is_the_one_that_it_names(case):
    rung, tiles, s = case
    scene = gemm_scene(s, rung, tiles, *matrices(s))
    for t in range(scene.steps):
        caption = scene.caption(t)
        assert "{" not in caption and "](" not in caption and "nan" not in caption.lower()
        if sums := re.findall(r"sum is now (.*?)\.(?: |$)", caption):
            assert sums == [number(scene.cells("acc", t)[0])]


@pytest.mark.parametrize("rung", SHARED)
def test_barriers_are_those_of_the_measured_build_and_light_their_line(rung):
    dtype = DTYPES.get(rung, "fp32")
    plan = plan_of(GemmShape(16, 16, 16, dtype=dtype), rung, smallest(rung))
    s = GemmShape(plan.BM, plan.BN, 2 * plan.BK, dtype=dtype)
    matrices_ = matrices(s)
    scene = gemm_scene(s, rung, smallest(rung), *matrices_, every_step=True)
    _, counters = one_block(s, rung, smallest(rung), *matrices_)
    lines = scene.source.text.splitlines()
    lit = [lines[int(line) - scene.source.first] for line in scene.source.lines]
    for t, line in enumerate(lit):
        assert ("__syncthreads" in line) == ("Barrier: " in scene.caption(t))
        assert "wait_groups<" not in line or "waits until" in scene.caption(t)
    assert sum("__syncthreads" in line for line in lit) == counters.total["barriers"] / (plan.threads / 32)


@pytest.mark.parametrize("rung", RUNGS)
def test_one_owner_is_shown_term_by_term_and_the_others_follow(rung):
    s = GemmShape(32, 32, 32, dtype=DTYPES.get(rung, "fp32"))
    scene = gemm_scene(s, rung, smallest(rung), *matrices(s), every_step=True)
    captions = [scene.caption(t) for t in range(scene.steps)]
    terms = [int(text.split()[2].rstrip(":")) for text in captions if text.startswith("k = ")]
    assert terms == sorted(terms) and terms[0] == 0 and len(terms) == len(set(terms))
    assert any(text.startswith("The other ") and "same" in text for text in captions)


@settings(max_examples=5)
@given(cases())
def test_only_a_scene_with_steps_to_fold_says_that_it_folds(case):
    rung, tiles, s = case
    folded, whole = (gemm_scene(s, rung, tiles, *matrices(s), every_step=every) for every in (False, True))
    assert folds(s, rung, tiles) == (folded.steps < whole.steps) and folded.key != whole.key
    for tensor in folded.tensors:
        np.testing.assert_array_equal(folded.cells(tensor.name), whole.cells(tensor.name), tensor.name)


@pytest.mark.parametrize("rung", ["gemm/double-buffer", "gemm/warp-tile", "gemm/register-pipeline", "gemm/mma-sync"])
def test_first_copy_is_waited_for_and_later_ones_run_ahead(rung):
    s = GemmShape(128, 64, 64, dtype=DTYPES.get(rung, "fp32"))
    scene = gemm_scene(s, rung, smallest(rung), *matrices(s))
    copies = [text for t in range(scene.steps) if (text := scene.caption(t)).startswith(("Tile ", "Warp 0 begins"))]
    first = [text for text in copies if text.startswith("Tile 1 of ")]
    assert first and all("wait for this first copy" in text for text in first)
    assert copies[len(first) :] and all("runs while earlier tiles" in text for text in copies[len(first) :])


@pytest.mark.parametrize(
    ("rung", "tiles", "says"),
    [
        ("gemm/mma-sync", {}, "Its tile of 256 × 128 is larger than this part of C: the rest is filled with zeros."),
        ("gemm/double-buffer", {}, "Its tile of 128 × 128 is larger than this part of C"),
        ("gemm/double-buffer", {"BM": 64, "BN": 64}, ""),
        ("gemm/naive", {}, ""),
    ],
)
def test_a_tile_larger_than_the_matrix_is_named(rung, tiles, says):
    s = GemmShape(64, 64, 64, dtype=DTYPES.get(rung, "fp32"))
    scene = gemm_scene(s, rung, tiles, *matrices(s))
    assert says in scene.caption(0) and ("filled with zeros" in scene.caption(0)) == bool(says)


@pytest.mark.parametrize(
    ("alpha", "beta", "says"),
    [
        (1, 0, "stores its sums to C."),
        (2, 0, "is 2 times its sum."),
        (1, 3, "is its sum plus 3 times C0."),
        (-1, 3, "is −1 times its sum plus 3 times C0."),
    ],
)
def test_caption_of_the_store_has_alpha_and_beta(alpha, beta, says):
    s = GemmShape(8, 8, 8, alpha=alpha, beta=beta)
    for rung in ("gemm/naive", "gemm/shared-tile"):
        scene = gemm_scene(s, rung, smallest(rung), *matrices(s))
        assert any(says in scene.caption(t) for t in range(scene.steps))


@pytest.mark.parametrize("rung", ["shared-tile", "register-tile-2d", "vectorized", "bank-free", "double-buffer"])
def test_cells_of_tiles_have_the_kernels_index(rung):
    """A tile is drawn as the kernel's array: the same rows and columns, and an index of the buffer if it has several."""
    rung, s = f"gemm/{rung}", GemmShape(64, 64, 64)
    scene, plan = gemm_scene(s, rung, smallest(rung), *matrices(s)), plan_of(s, rung, smallest(rung))
    for name in ("tile_a", "tile_b"):
        tensor, sizes = scene.tensor(name), plan.tiles | {"PAD": 128 // plan.BK}
        declared = re.search(rf"{name}(?: = \(float \(\*\)|)\[([^\]]+)\]\[([^\]]+)\][;)]", sources.text(plan.file))
        extents = [eval(size.replace("/", "//"), {}, sizes) for size in declared.groups()]
        assert (tensor.rows, tensor.cols) == tuple(extents) and tensor.symbol == name
        assert bool(tensor.plane_name) == (plan.stages > 1)


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
