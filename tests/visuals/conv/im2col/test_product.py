"""The second act of im2col: its tiles are those that the emulated GEMM loads, its sums are those of the terms so far."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.ladders import find
from kernels.runner import compare
from tests.helpers.shapes import conv_shapes
from visuals.conv.im2col import captions
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.part import _block, part_of

TOY = CONV_PRESETS["toy"].shape
TWO_K_TILES = ConvShape(1, 2, 6, 6, 3, 3, 3)  # 18 terms
RUNG = find("conv/im2col-gemm")
TILE_THREADS = RUNG.default_tiles["TILE"] ** 2  # of a block
LOAD, SUM, STORE, BARRIER = ("tile_a[thread_row][thread_col] =", "sum += tile_a[", "*C = sum;", "__syncthreads();")


def integers(s: ConvShape):
    rng = np.random.default_rng(5)
    return rng.integers(0, 10, s.x_shape).astype("f4"), rng.integers(-2, 3, s.w_shape).astype("f4")


def whole_numbers(s: ConvShape, part=None, tile=None):
    """Returns the scene and the output float64[K, P, Q] of image 0, of whole numbers."""
    x, w = integers(s)
    part, y = part or part_of(s), reference.conv2d(s, x.astype(float), w.astype(float))[0]
    visible = y[: part.K, part.p : part.p + part.P, part.q : part.q + part.Q]
    return im2col_scene(s, part, x, w, visible.astype("f4"), tile), y


def line_at(scene, t: int) -> str:
    source, line = scene.source_at(t)
    return source.text.splitlines()[line - source.first] if line else ""


def reads_of(scene, name: str, t: int) -> np.ndarray:
    read = next(r for r in scene.reads if r.source == name)
    return read.cells[read.start[t] : read.start[t + 1]]


def multiplications(scene) -> list[int]:
    return loads(scene, "multiply")


def loads(scene, kind: str = "load") -> list[int]:
    """Returns the steps that load tiles, or multiply them."""
    kinds = [captions.KINDS[kind] for kind in scene.captions.kind]
    return [t for t, name in enumerate(kinds) if name.startswith(kind)]


def parts_of(s: ConvShape):
    """Returns the whole, and the first block of 2 x 2 outputs of at most 3 channels."""
    return [part_of(s), _block(s, min(s.C, 3), min(s.K, 4), min(s.P, 2), min(s.Q, 2), 0, 0)]


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from((8, 16, 32, 0)), st.data())
def test_the_last_step_shows_the_convolution(s, tile, data):
    scene, y = whole_numbers(s, part := data.draw(st.sampled_from(parts_of(s))), tile)
    visible = y[: part.K, part.p : part.p + part.P, part.q : part.q + part.Q]
    for name in ("C", "y"):  # the same bytes
        np.testing.assert_array_equal(scene.cells(name), visible.ravel())
    assert np.isnan(scene.cells("y", scene.steps - 2)).all()


@settings(max_examples=5)
@given(conv_shapes())
def test_the_output_is_that_of_the_emulated_kernels(s):
    s, (x, w) = s.with_(N=1), integers(s.with_(N=1))
    scene, _ = whole_numbers(s, parts_of(s)[0])
    emulated = compare([RUNG.name], s, {"x": x, "w": w}, engine="emulator", measure=False)[0].output
    part = parts_of(s)[0]
    rows, cols = slice(part.p, part.p + part.P), slice(part.q, part.q + part.Q)
    np.testing.assert_array_equal(scene.cells("y"), emulated[0, : part.K, rows, cols].ravel())


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from((8, 16, 32)), st.data())
def test_each_partial_sum_is_the_sum_of_the_terms_so_far(s, tile, data):
    scene, _ = whole_numbers(s, data.draw(st.sampled_from(parts_of(s))), tile)
    w, D = (scene.cells(n).reshape(scene.tensor(n).rows, -1).astype(float) for n in "wD")
    for t in multiplications(scene):
        k = np.unique(reads_of(scene, "w", t) % w.shape[1])
        rows, cols = (np.unique(reads_of(scene, "w", t) // w.shape[1]), np.unique(reads_of(scene, "D", t) % D.shape[1]))
        if w.shape[1] < s.CRS or k[-1] + 1 < w.shape[1]:  # else the kernel's own output, as in the last step
            expected = (w[rows, : k[-1] + 1] @ D[: k[-1] + 1, cols]).ravel()
        else:
            expected = scene.cells("C").reshape(len(w), -1)[np.ix_(rows, cols)].ravel()
            np.testing.assert_array_equal(expected, (w[rows] @ D[:, cols]).ravel())
        written = next(w for w in scene.writes if w.target == "sum")
        at_t = written.steps == t
        inside = written.cells[at_t][: len(expected)]
        np.testing.assert_array_equal(scene.cells("sum", t)[inside], expected)
        assert (written.values[at_t][len(expected) :] == 0).all()  # of threads outside the matrix


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from((8, 16, 32)), st.data())
def test_every_tile_is_loaded_once_per_use(s, tile, data):
    scene, _ = whole_numbers(s, data.draw(st.sampled_from(parts_of(s))), tile)
    whole_columns = scene.tensor("D").col_index
    columns = np.arange(scene.tensor("D").cols) if whole_columns is None else whole_columns
    tile_columns, tile_rows = len(np.unique(columns // tile)), -(-scene.tensor("w").rows // tile)
    for name, uses in (("w", tile_columns), ("D", tile_rows)):
        cells = np.concatenate([reads_of(scene, name, t) for t in loads(scene)])
        np.testing.assert_array_equal(np.bincount(cells, minlength=scene.tensor(name).size), uses)
    loaded, multiplied = (
        [(reads_of(scene, "w", t).tobytes(), reads_of(scene, "D", t).tobytes()) for t in steps]
        for steps in (loads(scene), multiplications(scene))
    )
    assert len(set(loaded)) == len(loaded)
    assert loaded == multiplied


@pytest.mark.parametrize("s", [TOY, TWO_K_TILES, ConvShape(1, 1, 9, 9, 2, 5, 5, pad=1)], ids=str)
def test_a_block_loads_the_cells_that_the_emulated_block_loads(s):
    x, w = integers(s)
    scene, _ = whole_numbers(s)
    program = RUNG.build(s, RUNG.default_tiles)
    for block in range(program.steps[1].grid[0]):
        trace, _ = emulator.trace_launch(program, 1, {"x": x, "w": w}, block)
        names = np.array(trace.buffers)[trace.buffer]
        loaded = {name: trace.element[(names == name) & ~trace.write] for name in ("w", "col")}
        steps = [t for t in loads(scene) if scene.captions.args[t][0] == block]
        for name, cells in (("w", loaded["w"]), ("D", loaded["col"])):
            read = np.concatenate([reads_of(scene, name, t) for t in steps])
            np.testing.assert_array_equal(np.sort(read), np.sort(cells))
        stored = trace.element[(names == "y") & trace.write]
        (store,) = set(scene.write("C").steps[stored])
        assert scene.captions.args[store][0] == block
        np.testing.assert_array_equal(np.flatnonzero(scene.write("C").steps == store), np.sort(stored))


@settings(max_examples=20)
@given(conv_shapes(), st.data())
def test_each_step_lights_a_line_of_the_kernel_that_runs(s, data):
    scene, _ = whole_numbers(s, part := data.draw(st.sampled_from(parts_of(s))))
    copies, loaded, multiplied = part.P * part.Q, loads(scene), multiplications(scene)
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        assert source.file == ("02_im2col.cu" if t < copies else "03_gemm.cu")
        if t < copies:
            assert "column[" in line_at(scene, t)
        elif t in scene.write("C").steps:
            assert STORE in line_at(scene, t)
        elif t == scene.steps - 1:
            assert line == 0  # the reshape runs no kernel
        elif t in loaded:
            assert LOAD in line_at(scene, t)
        elif t - 1 in (*loaded, *multiplied):
            assert BARRIER in line_at(scene, t) and scene.caption(t).startswith("Barrier: ")
        else:
            assert SUM in line_at(scene, t)
    assert set(multiplied) <= set(range(copies, scene.steps))


LETTERS = dict(zip(captions.KINDS[2:8], "LLBMMB", strict=True)) | {"store": "S"}


def of_trace(trace) -> str:
    """Returns what the emulated block does: loads tiles (L), waits at a barrier (B), multiplies (M), stores (S)."""
    text = sources.text("conv/03_gemm.cu").splitlines()
    in_tile = np.array(trace.buffers)[trace.buffer] == "tile_b"
    loaded = set(trace.step[in_tile & trace.write])
    letters = ""
    for step, number in enumerate(trace.line):
        here = text[trace.lines[number].number - 1] if trace.lines[number] else ""
        marks = {"L": step in loaded, "B": BARRIER in here, "M": SUM in here, "S": STORE in here}
        letters += "".join(letter for letter, is_here in marks.items() if is_here)
    return re.sub(r"(.)\1+", r"\1", letters)


@pytest.mark.parametrize("s", [TOY, TWO_K_TILES], ids=str)
def test_barriers_are_steps_as_in_the_emulated_block(s):
    x, w = integers(s)
    scene, _ = whole_numbers(s)
    trace, counters = emulator.trace_launch(RUNG.build(s, RUNG.default_tiles), 1, {"x": x, "w": w}, 0)
    kinds = [captions.KINDS[kind] for kind in scene.captions.kind[s.PQ : -1]]
    blocks = scene.captions.args[s.PQ : -1, 0]
    assert "".join(LETTERS[k] for k, block in zip(kinds, blocks, strict=True) if not block) == of_trace(trace)
    barriers = [t for t in range(scene.steps) if BARRIER in line_at(scene, t)]
    assert len(barriers) == counters.total["barriers"] / (TILE_THREADS / 32)  # of all blocks
    for t in barriers:  # nothing is written
        for tensor in scene.tensors:
            np.testing.assert_array_equal(scene.cells(tensor.name, t), scene.cells(tensor.name, t - 1))


def test_the_product_of_the_toy_in_words():
    scene, _ = whole_numbers(TOY)
    assert scene.steps == 36 + 3 * 5 + 1
    assert scene.caption(36) == (
        "Block (0, 0) loads two tiles into shared memory: columns 0 to 8 of the filters, rows 0 to 8 of the data matrix."
    )
    assert "waits until both tiles are complete" in scene.caption(37)
    assert scene.caption(38) == (
        "Block (0, 0) multiplies the two tiles. Their product is added to the sums of output columns 0 to 15."
    )
    assert "waits until all threads have read both tiles" in scene.caption(39)
    assert "block (0, 0) have all 9 terms" in scene.caption(40)
    assert "output columns 32 to 35" in scene.caption(48)
    assert scene.caption(51) == (
        "Each row of the output matrix is read as one plane of 6 × 6. Only the view changes: no bytes move."
    )
    assert scene.write("y").reshapes and scene.tensor("sum").cols == 16


def test_a_part_says_that_other_channels_are_added():
    s = CONV_PRESETS["resnet50-res2-3x3-n1"].shape
    part = part_of(s)
    ones = [np.ones(shape, "f4") for shape in ((1, part.C, s.H, s.W), (part.K, part.C, 3, 3), (part.K, part.P, part.Q))]
    scene = im2col_scene(s, part, *ones)
    t = next(t for t in range(scene.steps) if "not shown" in scene.caption(t))
    assert scene.caption(t).startswith(f"The other {s.C - part.C} channels are not shown.") and SUM in line_at(scene, t)
    np.testing.assert_array_equal(scene.cells("y"), 1)


def test_a_single_column_is_named_in_the_singular():
    scene, _ = whole_numbers(ConvShape(1, 1, 9, 9, 1, 3, 3), tile=16)  # 49 columns, the last in a tile of its own
    assert "added to the sums of output column 48." in scene.caption(scene.steps - 4)
    scene, _ = whole_numbers(ConvShape(1, 1, 4, 4, 1, 1, 1))
    assert "column 0 of the filters, row 0 of the data matrix." in scene.caption(loads(scene)[-1])


def test_a_library_s_product_is_one_step_without_its_inside():
    scene, y = whole_numbers(TOY, tile=0)
    assert scene.steps == 36 + 2 and "sum" not in {t.name for t in scene.tensors}
    source, _ = scene.source_at(36)
    assert source.file == "cuBLAS" and "cublasSgemm(" in line_at(scene, 36) and "not public" in source.text
    assert scene.source_at(37) == (source, 0)
    assert "One call of cuBLAS" in scene.caption(36) and "is not shown" in scene.caption(36)
    assert len(reads_of(scene, "w", 36)) == 18 and len(reads_of(scene, "D", 36)) == 9 * 36
    np.testing.assert_array_equal(scene.cells("C", 36), y.ravel())


def test_counts_at_the_end_are_those_of_both_kernels():
    scene, _ = whole_numbers(TOY)
    counts = {reading.label: int(reading.values[-1]) for reading in scene.readings}
    assert counts == {
        "values loaded": 9 * 36 + 9 * 36 + 3 * 18,  # pixels, tiles of the data matrix, tiles of the filters
        "values stored": 9 * 36 + 2 * 36,
        "multiply-adds": 2 * 9 * 36,
    }
