"""The scene of implicit GEMM: the contents of its tiles, their sources and their times are equal to the emulated
kernel's."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict

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
from kernels.model.fast_division import magic
from tests.helpers.shapes import conv_shapes
from tests.visuals.scene.test_payload import check_same_pictures, decoded, read  # noqa: F401
from visuals.conv.implicit import captions, notes
from visuals.conv.implicit.plan import RUNGS, Plan, why_not
from visuals.conv.implicit.scene import implicit_scene
from visuals.scene.parts import SceneError
from visuals.scene.payload import payload
from visuals.scene.requests import lanes_of
from visuals.scene.scene import Scene
from visuals.units import bytes_, share

PLAIN, MAGIC = RUNGS
SETS = [dict(t) for t in find(MAGIC).tile_sets(CONV_PRESETS["toy"].shape)]
SMALL = {"BM": 32, "BN": 32, "BK": 16, "TM": 4, "TN": 4, "STAGES": 4}
ONE_TILE = CONV_PRESETS["one-tile"].shape
# Several blocks, images and tiles, everything ragged, the filter flipped; more columns than a tile.
RAGGED = ConvShape(3, 4, 7, 6, 37, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), mode="convolution")
FEW = ConvShape(1, 3, 4, 4, 5, 3, 3)  # fewer columns than a tile, fewer terms than the capacity of the stages
TOY_CELLS = 9 * 36  # of its data matrix
# The part of the tile inside the product, at the shape of the first chapters and at one of another width in each direction.
SMALLEST = {"BM": 32, "BN": 32, "BK": 8, "TM": 4, "TN": 4, "STAGES": 2}
INSIDE = ConvShape(1, 2, 4, 4, 2, 3, 3)
TRACED = [(INSIDE, SMALLEST), (ONE_TILE, find(MAGIC).default_tiles), (RAGGED, SMALL), (FEW, SMALL)]


def integers(s: ConvShape, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.integers(1, 10, s.x_shape).astype("f4"), rng.integers(1, 4, s.w_shape).astype("f4")


def scene_of(s: ConvShape, tiles, rung: str = MAGIC):
    x, w = integers(s)
    return implicit_scene(s, rung, tiles, x, w)


def matrix(s: ConvShape, y: np.ndarray) -> np.ndarray:
    """Returns y [N,K,P,Q] in the layout of the product, [K, N*P*Q]."""
    return y.transpose(1, 0, 2, 3).reshape(s.K, -1)


# -- cells -----------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(SETS), st.sampled_from(RUNGS))
def test_last_step_shows_the_convolution(s, tiles, rung):
    x, w = integers(s)
    scene = implicit_scene(s, rung, tiles, x, w)
    ref, _ = reference.conv(s, x, w)
    plan = Plan(s, rung, tiles)
    shown = matrix(s, ref)[: plan.BM, : plan.columns_shown]
    np.testing.assert_array_equal(scene.cells("y"), shown.ravel())
    rows, cols = plan.owned(0)
    inside = np.pad(shown, ((0, plan.BM), (0, plan.BN)))[np.ix_(rows, cols)]
    np.testing.assert_array_equal(scene.cells("acc"), inside.ravel())
    assert np.isnan(scene.cells("D")).all()  # never stored


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(SETS))
def test_browser_sum_equals_the_output(s, tiles):
    scene = scene_of(s, tiles)
    (view,) = scene.views
    for _ in scene.matmuls:
        D = np.append(scene.cells("x"), 0)[view.index].reshape(scene.tensor("D").rows, -1)
        total = scene.cells("w").reshape(-1, len(D)) @ D
        np.testing.assert_array_equal(total.ravel(), scene.cells("y"))


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(RUNGS))
def test_matrix_annotation_has_the_pixel_address(s, rung):
    x, w = integers(s)
    scene, plan = implicit_scene(s, rung, SMALL, x, w), Plan(s, rung, SMALL)
    annotation = next(t for t in scene.annotations if t.tensor == "D")
    for i in range(0, scene.tensor("D").size, 7):
        a, (row, col) = annotation.captions.args[i], divmod(i, plan.columns_shown)
        k, c, tap, r, t = (int(a[n]) for n in (0, 2, 3, 5, 6))
        j, n, pixel, p, q = (int(a[n]) for n in (7, 9, 10, 12, 13))
        assert (k, c, tap, r, t) == (row, row // (s.R * s.S), row % (s.R * s.S), row % (s.R * s.S) // s.S, row % s.S)
        assert (j, n, pixel, p, q) == (col, col // s.PQ, col % s.PQ, col % s.PQ // s.Q, col % s.Q)
        # The kernel divides by multiplication: the upper half of a product, shifted.
        for high, number, by in ((1, k, s.R * s.S), (4, tap, s.S), (8, j, s.PQ), (11, pixel, s.Q)):
            assert int(a[high]) == 2 * number * magic(by).multiplier >> 32
            assert int(a[high]) >> magic(by).shift == number // by
        down, right = (s.R - 1 - r, s.S - 1 - t) if s.flip else (r, t)
        h, v = p * s.u - s.pad_h + down * s.dilation_h, q * s.v - s.pad_w + right * s.dilation_w
        inside = 0 <= h < s.H and 0 <= v < s.W
        assert (int(a[15]), int(a[16])) == (h, v) and annotation.captions.kind[i] == (not inside)
        if inside:
            assert int(a[17]) == np.ravel_multi_index((n, c, h, v), s.x_shape)
            shown = scene.views[0].index[i]
            assert scene.cells("x")[shown] == x[n, c, h, v]
    template = annotation.captions.templates[0]
    assert (f"{magic(s.R * s.S).multiplier} >> 32" in template) == (rung == MAGIC)


# -- against the trace ---------------------------------------------------------------------------------
def traced(s: ConvShape, tiles, rung: str = MAGIC):
    """Returns (x, w, trace of block 0 of the launch, which runs alone)."""
    x, w = integers(s)
    program = find(rung).build(s, find(rung).check(s, tiles))
    alone = dataclasses.replace(program, steps=(dataclasses.replace(program.steps[0], grid=(1, 1, 1)),))
    return x, w, emulator.trace_launch(alone, 0, {"x": x, "w": w})[0]


def copied(trace) -> dict[int, list[tuple[str, int]]]:
    """Returns the copies into each float of shared memory, in order: (buffer, element), ("", -1) for a zero."""
    requests, read, copies_by_float = trace.requests, {}, defaultdict(list)
    for n in range(len(requests)):
        name, warp = str(trace.buffers[requests.buffer[n]]), int(requests.warp[n])
        byte = {int(lane): int(requests.byte[n][lane]) for lane in lanes_of(int(requests.mask[n]) & 0xFFFFFFFF)}
        if name == "stages" and requests.write[n]:  # after the loads of its values
            lanes_read = read.pop(warp, {})
            for lane, offset in byte.items():
                copies_by_float[offset // 4].append(lanes_read.get(lane, ("", -1)))
        elif name in ("x", "w"):
            read[warp] = {lane: (name, offset // 4) for lane, offset in byte.items()}
    return copies_by_float


def stage_float(plan: Plan, name: str, cell: int) -> int:
    """Returns the offset of a cell of As or Bs in the kernel's shared memory. The scene may leave out columns of a row."""
    shown, width = plan.tile_shown[name == "Bs"], plan.pitch if name == "As" else plan.BN
    row, column = divmod(cell, shown)
    stage, k = divmod(row, plan.BK)
    first = stage * plan.BK * (plan.pitch + plan.BN) + (plan.BK * plan.pitch if name == "Bs" else 0)
    return first + k * width + column


def left_out(plan: Plan) -> dict[int, int]:
    """Returns the floats of shared memory that the scene leaves out, by offset: the float that has the same copies, -1 if
    they are zeros."""
    found = {}
    for row in range(plan.STAGES * plan.BK):
        stage, k = divmod(row, plan.BK)
        a = stage * plan.BK * (plan.pitch + plan.BN) + k * plan.pitch
        b = stage * plan.BK * (plan.pitch + plan.BN) + plan.BK * plan.pitch + k * plan.BN
        filters, columns = plan.tile_shown
        found |= {a + m: -1 for m in range(filters, plan.pitch)}
        found |= {b + n: b + columns - 1 for n in range(columns, plan.BN)}
    return found


@pytest.mark.parametrize(
    ("s", "tiles", "rung"),
    [*((*case, MAGIC) for case in TRACED), (RAGGED, SMALL, PLAIN)],
    ids=["inside", "one tile", "ragged", "few", "plain"],
)
def test_copies_into_shared_memory_and_reads_equal_the_trace(s, tiles, rung):
    x, w, trace = traced(s, tiles, rung)
    plan, scene, traced_copies = Plan(s, rung, tiles), implicit_scene(s, rung, tiles, x, w), copied(trace)
    for name, source in (("As", "w"), ("Bs", "x")):
        scene_copies = [  # the copies of the scene, in order of the steps
            (int(cell), element_of(plan, name, int(index)))
            for write in sorted(writes_of(scene, name), key=lambda write: write.steps[0])
            for cell, index in zip(write.cells, write.index, strict=True)
        ]
        expected_copies = defaultdict(list)
        for cell, element in scene_copies:
            expected_copies[stage_float(plan, name, cell)].append((source if element >= 0 else "", element))
        for offset, expected in expected_copies.items():
            assert traced_copies[offset][: len(expected)] == expected
            assert all(
                element == -1 for _, element in traced_copies[offset][len(expected) :]
            )  # beyond the last tile: zeros
    covered = {stage_float(plan, n, int(c)) for n in ("As", "Bs") for w in writes_of(scene, n) for c in w.cells}
    for offset, same in left_out(plan).items():
        expected = traced_copies[same] if same >= 0 else [("", -1)] * len(traced_copies.get(offset, []))
        assert traced_copies.get(offset, []) == expected
    uncovered = (
        set(traced_copies) - covered - set(left_out(plan))
    )  # stages that stay empty in the scene: there are fewer tiles
    assert all(source == ("", -1) for offset in uncovered for source in traced_copies[offset])
    assert_reads(plan, scene, trace)


def writes_of(scene, name: str):
    return [write for write in scene.writes if write.target == name]


def element_of(plan: Plan, name: str, index: int) -> int:
    """Returns the element of w, or of x through the data matrix, that is the source of a copy on the stage."""
    if index < 0:
        return -1
    row, col = divmod(index, plan.rows_shown if name == "As" else plan.columns_shown)
    return row * plan.s.CRS + col if name == "As" else int(plan.address[row, col])


def assert_reads(plan: Plan, scene: Scene, trace) -> None:
    """Checks that each iteration reads the values that the tiles have at its step."""
    names = np.array(trace.buffers)[trace.buffer]
    reads = (names == "stages") & ~trace.write
    iterations = np.split(np.flatnonzero(reads), np.flatnonzero(np.diff(trace.step[reads])) + 1)
    assert len(iterations) == plan.iterations == plan.iterations_shown
    beyond = left_out(plan)
    for iteration, accesses in enumerate(iterations):
        tile_values = {}
        for name in ("As", "Bs"):
            cells = scene.cells(name, int(scene_step(scene, iteration)))
            tile_values |= {stage_float(plan, name, c): v for c, v in enumerate(cells)}
        for element, value in zip(trace.element[accesses], trace.value[accesses], strict=True):
            same = beyond.get(int(element), int(element))
            assert value == (tile_values[same] if same >= 0 else 0)


def scene_step(scene, iteration: int) -> int:
    kinds = scene.captions.kind
    multiplied = np.isin(kinds, (captions.MULTIPLY, captions.MULTIPLY_ONE, captions.MULTIPLY_LAST))
    return np.flatnonzero(multiplied)[iteration]


@pytest.mark.parametrize("tiles", SETS[::4], ids=lambda t: "x".join(map(str, t.values())))
def test_each_thread_stores_its_owned_sums(tiles):
    s = ConvShape(2, 2, 9, 9, tiles["BM"] - 3, 2, 2)
    *_, trace = traced(s, tiles)
    plan = Plan(s, MAGIC, tiles)
    names = np.array(trace.buffers)[trace.buffer]
    stored = trace.write & (names == "y")
    n, k, p, q = np.unravel_index(trace.element[stored].astype(int), s.y_shape)
    columns = (n * s.P + p) * s.Q + q
    for thread in {0, 1, 17, plan.threads // 2, plan.threads - 1}:
        mine = trace.thread[stored] == thread
        rows, cols = plan.owned(thread)
        expected = {(r, c) for r in rows for c in cols if r < s.K and c < plan.columns}
        assert expected == set(zip(k[mine], columns[mine], strict=True))


def test_missing_filter_flip_is_detected(monkeypatch):
    """The trace must differ from a scene that does not flip the filter."""
    monkeypatch.setattr(Plan, "taps", property(lambda plan: plain_taps(plan.s)))
    with pytest.raises(AssertionError):
        test_copies_into_shared_memory_and_reads_equal_the_trace(RAGGED, SMALL, MAGIC)


def plain_taps(s: ConvShape) -> np.ndarray:
    c, r, t = np.unravel_index(np.arange(s.CRS), (s.C, s.R, s.S))
    h, w = r * s.dilation_h, t * s.dilation_w
    return np.stack([c, r, t, h, w, (c * s.H + h) * s.W + w], axis=1)


# -- time ----------------------------------------------------------------------------------------------
DEEP = ConvShape(1, 64, 5, 6, 2, 3, 3)  # more tiles than the scene shows
RINGS = list({(t["BK"], t["STAGES"]): t for t in SETS}.values())


@pytest.mark.parametrize("tiles", RINGS, ids=lambda t: f"BK {t['BK']}, {t['STAGES']} stages")
def test_remaining_tiles_are_one_step(tiles):
    scene, plan = scene_of(DEEP, tiles), Plan(DEEP, MAGIC, tiles)
    assert plan.iterations_shown < plan.iterations
    multiplied = np.isin(scene.captions.kind, (captions.MULTIPLY, captions.MULTIPLY_ONE, captions.MULTIPLY_LAST)).sum()
    assert multiplied == plan.iterations_shown - plan.STAGES + 1 and captions.REMAINING in scene.captions.kind
    check_stages(scene, plan)
    payload(scene)


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(SETS))
def test_stage_is_never_overwritten_before_its_tile_is_multiplied(s, tiles):
    check_stages(scene_of(s, tiles), Plan(s, MAGIC, tiles))


def check_stages(scene: Scene, plan: Plan) -> None:
    if not plan.is_part_of_tile:  # a small scene leaves the times to the order "timeline"
        check_times(scene, plan)
    kinds = scene.captions.kind
    steps = {
        name: np.flatnonzero(np.isin(kinds, of))
        for name, of in (
            ("fetch", (captions.FETCH_B, captions.FETCH_B_LATER)),
            ("use", (captions.MULTIPLY, captions.MULTIPLY_ONE, captions.MULTIPLY_LAST)),
        )
    }
    for tile, when in enumerate(steps["use"]):
        assert steps["fetch"][tile] < when
        if tile + plan.STAGES < len(steps["fetch"]):
            assert steps["fetch"][tile + plan.STAGES] > when  # it overwrites a tile that was multiplied


def check_times(scene: Scene, plan: Plan) -> None:
    columns = plan.iterations_shown + 1
    fly, use = (scene.cells(name).reshape(plan.STAGES, columns) for name in ("fly", "use"))
    for iteration in range(1, columns):
        (stage,) = np.flatnonzero(np.isfinite(use[:, iteration])) if np.isfinite(use[:, iteration]).any() else (None,)
        if stage is None:
            continue  # iterations that are one step
        assert use[stage, iteration] == iteration and stage == (iteration - 1) % plan.STAGES
        assert not np.isfinite(fly[stage, iteration]) or plan.STAGES == 1  # the tile has arrived
        copying = fly[stage, :iteration][np.isfinite(fly[stage, :iteration])]
        assert copying[-1] == iteration  # the last tile copied into this stage is this one
        in_flight = np.isfinite(fly[:, iteration]).sum()
        assert in_flight == min(plan.STAGES - 1, plan.iterations_shown - iteration)


# -- size and sentences ----------------------------------------------------------------------------------
@pytest.mark.parametrize("key", [*CONV_PRESETS][::2])
def test_every_preset_has_a_small_scene_that_names_its_part(key):
    s = CONV_PRESETS[key].shape.with_(N=1)
    scene = scene_of(s, find(MAGIC).default_tiles)
    meta, block = payload(scene)
    size = len(block) + len(json.dumps(meta))
    assert size < (100_000 if key in ("one-tile", "toy", "cudnn-paper") else 180_000)
    plan = Plan(s, MAGIC, find(MAGIC).default_tiles)
    assert ("part" in scene.tensor("D").note) == ((plan.rows_shown, plan.columns_shown) != (s.CRS, s.PQ))
    assert (captions.REMAINING in scene.captions.kind) == (plan.iterations_shown < plan.iterations)
    assert scene.readings[0].values[-1] == plan.iterations * plan.BK * plan.BN


def test_caption_names_the_share_of_the_tile_outside():
    caption = scene_of(CONV_PRESETS["toy"].shape, find(MAGIC).default_tiles).caption(0)
    assert f"{share(1 - 2 * 36 / 64**2)} of its 64 × 64 sums are outside" in caption
    assert caption.startswith("Block 0 computes ")  # numbered from 0, as in every lesson
    assert "are outside" not in scene_of(ONE_TILE, find(MAGIC).default_tiles).caption(0)


@pytest.mark.parametrize("rung", RUNGS)
def test_highlighted_lines_match_the_steps(rung):
    scene = scene_of(ONE_TILE, find(rung).default_tiles, rung)
    lines = sources.text(Plan(ONE_TILE, rung, find(rung).default_tiles).file).splitlines()
    highlighted = {
        int(kind): lines[int(line) - 1] for kind, line in zip(scene.captions.kind, scene.source.lines, strict=True)
    }
    assert "window(" in highlighted[captions.START] and "load_filters" in highlighted[captions.FETCH_A]
    assert "copy_async<4>(tile_b" in highlighted[captions.FETCH_B] and "multiply(" in highlighted[captions.MULTIPLY]
    assert "wait_groups<" in highlighted[captions.WAIT]
    assert "store<4>" in highlighted[captions.STORE]  # P*Q = 64 is a multiple of 4
    odd = scene_of(ConvShape(1, 1, 5, 5, 4, 3, 3), find(rung).default_tiles, rung)
    assert "store<1>" in lines[int(odd.source.lines[-1]) - 1]


@pytest.mark.parametrize(("rung", "stages"), [(PLAIN, 2), (MAGIC, 3)])
def test_each_barrier_is_a_step_where_the_emulated_block_waits(rung, stages):
    tiles = SMALLEST | {"STAGES": stages}
    scene, plan = scene_of(INSIDE, tiles, rung), Plan(INSIDE, rung, tiles)
    lines = [scene.source.text.splitlines()[int(line) - scene.source.first] for line in scene.source.lines]
    barriers = [t for t, line in enumerate(lines) if "__syncthreads();" in line]
    assert barriers == [t for t in range(scene.steps) if scene.caption(t).startswith("Barrier: ")]
    program = find(rung).build(INSIDE, find(rung).check(INSIDE, tiles))
    x, w = integers(INSIDE)
    _, counters = emulator.trace_launch(program, 0, {"x": x, "w": w})
    assert program.steps[0].grid == (1, 1, 1)
    assert len(barriers) == counters.total["barriers"] / (plan.threads / 32) == plan.iterations
    for t in barriers:  # after the wait for copies, before the next copy; nothing is written
        assert "wait_groups<" in lines[t - 1]
        assert "load_filters" in lines[t + 1] or "multiply(" in lines[t + 1]
        for tensor in scene.tensors:
            np.testing.assert_array_equal(scene.cells(tensor.name, t), scene.cells(tensor.name, t - 2))


def test_why_not_names_the_rule():
    assert "BM % 64 == 0, got 32" in why_not(ONE_TILE, MAGIC, find(MAGIC).default_tiles | {"BM": 32, "TM": 8})
    assert "groups" not in why_not(ONE_TILE, MAGIC, find(MAGIC).default_tiles)
    assert "is not one of our implicit GEMM kernels" in why_not(ONE_TILE, "conv/direct", {})


def test_the_player_decodes_the_same_picture(decoded):  # noqa: F811
    check_same_pictures(decoded, [(scene_of(s, tiles), [0, 2, 5]) for s, tiles in TRACED[:2]])


def test_annotation_arguments_are_sent_as_row_plus_column():
    scene = scene_of(RAGGED, SMALL)
    meta, block = payload(scene)
    annotation, entry = scene.annotations[0], meta["annotations"][0]["captions"]["args"]
    row, col = (
        read(block, entry[name]).astype(int).reshape(-1, meta["annotations"][0]["captions"]["width"])
        for name in ("row", "col")
    )
    np.testing.assert_array_equal(
        (row[:, None] + col).reshape(annotation.captions.args.shape), annotation.captions.args
    )
    assert len(row) * len(col) == scene.tensor("D").size


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ({"source": "nowhere"}, "names no tensor"),
        ({"index": np.zeros(3, int)}, "misses cells"),
        ({"index": np.full(TOY_CELLS, 10**6)}, "leaves x"),
        ({"tensor": "y", "index": np.zeros(2 * 36, int)}, "the view y is written"),
    ],
)
def test_a_view_that_breaks_the_contract_is_refused(view, says):
    scene = scene_of(CONV_PRESETS["toy"].shape, find(MAGIC).default_tiles)
    with pytest.raises(SceneError, match=says):
        dataclasses.replace(scene, views=(dataclasses.replace(scene.views[0], **view),))


# -- notes -----------------------------------------------------------------------------------------------
def row(rung: str, ms: float) -> dict:
    return {"rung": rung, "engine": "cuda", "median_ms": ms, "p20_ms": 0.99 * ms, "p80_ms": 1.01 * ms}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], [""]),
        ([(MAGIC, 1.0)], [""]),
        ([("conv/im2col-cublas", 1.0)], [""]),
        ([(MAGIC, 1.0), (PLAIN, 1.5)], ["Division by multiply and shift is faster: 1.5× as fast as plain division."]),
        ([(MAGIC, 1.0), (PLAIN, 1.0)], ["makes no measurable difference here"]),
        ([(MAGIC, 2.0), (PLAIN, 1.0)], ["slower here: 2× the time of plain division."]),
        ([(MAGIC, 1.0), ("conv/im2col-cublas", 2.0)], ["Implicit GEMM is 2× as fast as im2col + cuBLAS."]),
        (
            [(MAGIC, 2.0), ("conv/cudnn-implicit-gemm", 4.0), ("conv/cudnn-implicit-precomp-gemm", 1.0)],
            ["Implicit GEMM takes 2× the time of cuDNN"],
        ),
    ],
)
def test_gain_sentence(rows, says):
    sentence = notes.gain({name: row(name, ms) for name, ms in rows})
    assert all(text in sentence for text in says) and (sentence == "") == (says == [""])


def test_unstored_matrix_has_the_size_of_im2col():
    program = find("conv/im2col-cublas").build(RAGGED, find("conv/im2col-cublas").default_tiles)
    assert f"would take {bytes_(program.nbytes('workspace'))}." in notes.cost(RAGGED)
