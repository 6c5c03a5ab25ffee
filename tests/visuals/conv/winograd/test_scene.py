"""The scenes of Winograd: their cells are equal to the output of the kernels and of the CPU implementations. Each
sum on the stage gives its cell, and each tile reads the pixels that the kernel reads."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import reference, winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import MODES, ConvShape
from kernels.conv.winograd import tiles_of
from kernels.engines import emulator
from kernels.ladders import find
from tests.visuals.scene.test_payload import read
from visuals.conv.inputs import Inputs
from visuals.conv.winograd import part as winograd_part
from visuals.conv.winograd.fused import fused_scene
from visuals.conv.winograd.part import NONFUSED, Part, computed, numbers, operations, part_of, why_not
from visuals.scene.parts import SceneError
from visuals.scene.payload import payload
from visuals.scene.scene import Scene

TOY = CONV_PRESETS["toy"].shape
KERNELS = [("fused", 2), ("fused", 4)]
kernels = pytest.mark.parametrize(("how", "m"), KERNELS)
SUPPORTED = [key for key, preset in CONV_PRESETS.items() if not why_not(preset.shape, 2)]


@st.composite
def shapes(draw, max_size: int = 11) -> ConvShape:
    """Draws 3x3, stride 1: tiles that extend beyond the map, padding wider than the filter and of two widths, a map
    smaller than a tile."""
    pad = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    extra = draw(st.just((0, 0)) | st.tuples(*(st.integers(-p, 3) for p in pad)))
    H, W = (draw(st.integers(max(1, 3 - 2 * p - e), max_size)) for p, e in zip(pad, extra, strict=True))
    N, C, K = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return ConvShape(N, C, H, W, K, 3, 3, pad=pad, extra=extra, mode=draw(st.sampled_from(MODES)))


def integers(s: ConvShape, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 10, s.x_shape).astype("f4"), rng.integers(-2, 3, s.w_shape).astype("f4")


def scene_of(how: str, part: Part, x: np.ndarray, w: np.ndarray) -> Scene:
    h, H, v, W = part.pixels
    n = computed(part, x[0, :, h : h + H, v : v + W], w[: part.K])
    return fused_scene(part, {}, n)


def parts(s: ConvShape, m: int) -> list[Part]:
    """Returns the part that is shown, and blocks like those of a large shape: one tile at several positions."""
    whole = part_of(s, m)
    down, across = whole.grid
    ends = {(0, 0), (down - 1, across - 1), (down // 2, across // 2)}
    return [whole, *(replace(whole, C=1, K=1, down=1, across=1, i0=i, j0=j) for i, j in sorted(ends))]


def scale_of(s: ConvShape, m: int, x: np.ndarray, w: np.ndarray) -> float:
    rung = find(NONFUSED)
    return float(rung.scale(s, rung.default_tiles | {"M": m}, {"x": x, "w": w}).max())


# -- the last step ---------------------------------------------------------------------------------
@settings(max_examples=20)
@given(shapes(), st.sampled_from(KERNELS), st.data())
def test_last_step_shows_the_convolution(s, kernel, data):
    how, m = kernel
    x, w = integers(s)
    part = data.draw(st.sampled_from(parts(s, m)))
    scene, (p, P, q, Q) = scene_of(how, part, x, w), part.out
    exact, _ = reference.conv(s, x=x, w=w)
    shown = exact[0, : part.K, p : p + P, q : q + Q].ravel()
    np.testing.assert_allclose(scene.cells("y"), shown, rtol=0, atol=1e-6 * scale_of(s, m, x, w))
    assert np.isfinite(scene.cells("y")).all()


@settings(max_examples=20)
@given(shapes(), st.sampled_from([2, 4]))
def test_fused_scene_has_the_transforms_of_the_cpu_kernels(s, m):
    x, w = integers(s)
    part = part_of(s, m)
    scene, n = scene_of("fused", part, x, w), computed(part, x[0], w[: part.K])
    if not part.is_whole:
        return
    U = scene.cells("U").reshape(part.K, part.C, -1)
    np.testing.assert_array_equal(U, n.U[:, :, : part.K].transpose(2, 1, 0))
    last = part.tiles - 1
    np.testing.assert_array_equal(scene.cells("V").reshape(part.C, -1), n.V[:, :, last].T)
    np.testing.assert_array_equal(scene.cells("Z").reshape(part.K, -1), n.Z[:, :, last].T)
    window = part.window(last)
    np.testing.assert_array_equal(scene.cells("d").reshape(part.C, -1)[0], np.append(x[0, 0], 0)[window])


# -- sums of cells ---------------------------------------------------------------------------------
def wrong_sums(scene: Scene, tolerance: float) -> int:
    """Returns the number of cells whose terms, at the step that writes the cell, do not sum to the written value."""
    wrong = 0
    for s in scene.sums:
        steps, cells, values = scene._events(s.out)
        for t in np.unique(steps):
            current = steps == t
            right = scene.cells(s.right, t)
            factors = scene.cells(s.left, t)[s.factors] if s.left else s.factors
            terms = factors.astype(float) * right[s.cells]
            total = np.append(0, np.cumsum(terms))
            sums = (total[s.start[1:]] - total[s.start[:-1]])[cells[current]]
            if not s.rest:
                wrong += int((~(np.abs(sums - values[current]) <= tolerance)).sum())
    return wrong


@settings(max_examples=20)
@given(shapes(max_size=8), st.sampled_from(KERNELS))
def test_every_sum_equals_its_cell(s, kernel):
    how, m = kernel
    x, w = integers(s)
    scene = scene_of(how, part_of(s, m), x, w)
    assert {total.out for total in scene.sums} == {"U", "V", "Z", "y"}
    assert wrong_sums(scene, 1e-5 * scale_of(s, m, x, w)) == 0


@kernels
def test_wrongly_flipped_filter_is_detected(how, m, monkeypatch):
    right = winograd_part.terms
    backwards = lambda X, flip=False: right(X, flip=not flip)  # noqa: E731
    monkeypatch.setattr("visuals.conv.winograd.fused.terms", backwards)
    x, w = integers(TOY)
    assert wrong_sums(scene_of(how, part_of(TOY, m), x, w), 1e-3) > 0


@kernels
def test_misplaced_window_is_detected(how, m, monkeypatch):
    monkeypatch.setattr(
        Part, "at", lambda self, tile: (self.i0 + tile // self.across, (self.j0 + tile % self.across) * self.m)
    )
    s = ConvShape(1, 1, 14, 14, 1, 3, 3)
    x, w = integers(s)
    with pytest.raises((AssertionError, SceneError, KeyError)):
        scene = scene_of(how, part_of(s, m), x, w)
        exact, _ = reference.conv(s, x=x, w=w)
        np.testing.assert_allclose(scene.cells("y"), exact[0, :1].ravel(), atol=1e-3)
        assert wrong_sums(scene, 1e-3) == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"out": "nobody"}, "names no tensor"),
        ({"start": np.array([0, 3])}, "do not divide"),
        ({"cells": np.array([10**6])}, "not a factor for each term|do not divide"),
        ({"left": "Q"}, "names no tensor"),
    ],
)
def test_a_sum_that_breaks_the_contract_is_refused(fields, says):
    scene = scene_of("fused", part_of(TOY, 2), *integers(TOY))
    with pytest.raises(SceneError, match=says):
        replace(scene, sums=(replace(scene.sums[0], **fields),))


# -- tiles -------------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(shapes(), st.sampled_from([2, 4, 6]))
def test_tiles_read_the_pixels_of_the_kernel(s, m):
    """Like load_tile in winograd.cuh: T x T pixels from p - pad_h, q - pad_w on, zeros outside."""
    part = part_of(s, m)
    down, across = part.grid
    assert down * across * s.N == tiles_of(s, m)
    _, _, _, W = part.pixels
    for tile in range(part.tiles):
        number = part.number(tile)
        p, q = number // across % down * m, number % across * m
        assert part.at(tile) == (p, q)
        for i, cell in enumerate(part.window(tile)):
            h, v = p - s.pad_h + i // part.T, q - s.pad_w + i % part.T
            inside = 0 <= h < s.H and 0 <= v < s.W
            assert (cell >= 0) == inside
            if inside:
                assert (h, v) == (part.pixels[0] + cell // W, part.pixels[2] + cell % W)


@pytest.mark.parametrize("m", [2, 4, 6])
def test_neighbouring_tiles_share_two_columns(m):
    part = part_of(ConvShape(1, 1, 4 * m + 2, 4 * m + 2, 1, 3, 3), m)
    for left, right in pairwise(range(part.across)):
        shared = set(part.window(left)) & set(part.window(right))
        assert len(shared) == 2 * part.T
        assert len({cell % part.pixels[3] for cell in shared}) == 2


def test_reads_are_counted_as_the_tiles_overlap():
    s = ConvShape(1, 1, 8, 8, 1, 3, 3, pad=1)
    scene = scene_of("fused", part_of(s, 2), *integers(s))
    reads = scene.cells("R").reshape(8, 8)
    assert reads.sum() == sum((part_of(s, 2).window(t) >= 0).sum() for t in range(16))
    assert reads[3, 3] == 4 and reads[0, 0] == 1 and reads.max() == 4
    assert " 0 of them were read before" in scene.caption(2)
    second = next(t for t in range(scene.steps) if scene.caption(t).startswith("Tile 1 "))
    assert " 6 of them were read before" in scene.caption(second)  # 3 rows (one of 4 is padding) of 2 columns


# -- counts ------------------------------------------------------------------------------------------
class Counting:
    """A number that counts the operations on it, by the rule on the page."""

    done = winograd_matrices.Count(0, 0)

    def __init__(self, value=0.0):
        self.value = value

    def times(self, factor):
        if abs(factor) != 1:
            Counting.done = winograd_matrices.Count(Counting.done.additions, Counting.done.multiplications + 1)
        return Counting(self.value * factor)

    def plus(self, other):
        Counting.done = winograd_matrices.Count(Counting.done.additions + 1, Counting.done.multiplications)
        return Counting(self.value + other.value)


def both_sides(X, d):
    """Computes X d X^T like transform_2d in winograd.cuh: X d, then that times X^T, without the zeros."""

    def line(row, column):
        total = None
        for factor, number in zip(row, column, strict=True):
            if factor:
                term = number.times(factor)
                total = term if total is None else total.plus(term)
        return total

    half = [[line(row, [r[j] for r in d]) for j in range(len(d[0]))] for row in X]
    return [[line(row, whole) for row in X] for whole in half]


@pytest.mark.parametrize("m", [2, 4, 6])
def test_operations_equal_those_of_the_kernel_loops(m):
    t = winograd_matrices.derive(m, 3)
    for X, expected in ((t.G, operations(m).filter), (t.BT, operations(m).input), (t.AT, operations(m).output)):
        Counting.done = winograd_matrices.Count(0, 0)
        size = len(X[0])
        both_sides(X, [[Counting() for _ in range(size)] for _ in range(size)])
        assert Counting.done == expected


@kernels
def test_readings_end_at_the_counts_of_the_whole_map(how, m):
    s = ConvShape(1, 2, 9, 9, 2, 3, 3)
    part = part_of(s, m)
    scene = scene_of(how, part, *integers(s))
    direct, product, additions, times = (int(r.values[-1]) for r in scene.readings)
    ops, pairs = operations(m), part.K * part.C
    _, P, _, Q = part.out
    assert direct == 9 * P * Q * pairs
    assert product == winograd_matrices.multiplications_2d(m, 3)[1] * part.tiles * pairs
    for total, name in ((additions, "additions"), (times, "multiplications")):
        once = [getattr(count, name) for count in (ops.filter, ops.input, ops.output)]
        assert total == pairs * once[0] + part.tiles * (part.C * once[1] + part.K * once[2])


# -- the contract with the page ------------------------------------------------------------------------
@kernels
@pytest.mark.parametrize("key", SUPPORTED[::5])
def test_every_supported_preset_has_a_small_scene_that_names_its_part(key, how, m):
    s = CONV_PRESETS[key].shape
    inputs = Inputs(s, "digit", "sobel-x")
    part = part_of(s, m, inputs.planes()[0])
    n = numbers(part, inputs)
    scene = fused_scene(part, {}, n)
    meta, block = payload(scene)
    assert len(block) + len(json.dumps(meta)) < 100_000
    notes = {name: scene.tensor(name).note for name in "xwy"}
    assert ("part" in notes["x"]) == (not part.is_whole or part.C < s.C)
    assert ("part" in notes["y"]) == (not part.is_whole or part.K < s.K)
    assert (f"{part.K} of {s.K} filters" in notes["w"]) == (part.K < s.K)
    assert notes["x"].startswith(f"image 0 of {s.N}") == (s.N > 1)
    if s.C > part.C:
        assert any(total.rest == "channels" for total in scene.sums)


@kernels
def test_large_shape_is_summed_over_all_channels(how, m):
    s = ConvShape(1, 20, 40, 40, 9, 3, 3, pad=1)
    inputs = Inputs(s, "digit", "random")
    part = part_of(s, m, inputs.planes()[0])
    assert not part.is_whole and part.C < s.C
    n = numbers(part, inputs)
    scene = fused_scene(part, {}, n)
    exact, _ = reference.conv(s, x=inputs.x(), w=inputs.w())
    p, P, q, Q = part.out
    shown = exact[0, : part.K, p : p + P, q : q + Q].ravel()
    np.testing.assert_allclose(scene.cells("y"), shown, rtol=0, atol=1e-5 * np.abs(exact).max())
    assert scene.tensor("y").origin == (0, p, q)


@pytest.mark.parametrize(
    ("s", "rule"),
    [
        (TOY.with_(R=5), "R and S must be 3, got 5 and 3"),
        (TOY.with_(u=2), "stride must be 1"),
        (TOY.with_(dilation_h=2), "dilation must be 1"),
        (ConvShape(1, 2, 8, 8, 2, 3, 3, groups=2), "groups must be 1, got 2"),
    ],
)
def test_unsupported_shape_names_the_rule(s, rule):
    assert rule in why_not(s, 4)
    with pytest.raises(ValueError, match="must be"):
        part_of(s, 4)


@kernels
def test_highlighted_line_matches_the_caption(how, m):
    scene = scene_of(how, part_of(TOY, m), *integers(TOY))
    lines = scene.source.text.splitlines()
    for t in range(scene.steps):
        line, caption = lines[int(scene.source.lines[t]) - scene.source.first], scene.caption(t)
        for phrase, code in (
            ("Xd = G g", "transform_2d(G"),
            ("Xd = Bᵀ d", "transform_2d(BT"),
            ("Xd = Aᵀ Z", "transform_2d(AT"),
            ("Both halves", "Xd[i][k] * X[j][k]"),
            ("Z = U · V, element", "sum["),
        ):
            if phrase in caption:
                assert code in line, (caption, line)
        assert "{" not in caption and "[" not in caption.replace(
            "[", "", caption.count("Z[") + caption.count("U[") + caption.count("V[")
        )


def test_sums_are_sent_to_the_browser_unchanged():
    """Starts, cells and factors are read back from the block."""
    scene = scene_of("fused", part_of(TOY, 4), *integers(TOY))
    meta, block = payload(scene)
    assert meta["sums"] and any("index" in entry["factors"] for entry in meta["sums"])
    for entry, s in zip(meta["sums"], scene.sums, strict=True):
        assert (entry["out"], entry["left"], entry["right"], entry["rest"]) == (s.out, s.left, s.right, s.rest)
        np.testing.assert_array_equal(read(block, entry["start"]), s.start)
        np.testing.assert_array_equal(read(block, entry["cells"]), s.cells)
        np.testing.assert_array_equal(read(block, entry["factors"]), s.factors)


@pytest.mark.parametrize("m", [2, 4])
def test_each_lane_of_the_fused_kernel_reads_and_writes_its_tile(m):
    """In the trace of block 0, thread `lane` of warp 0 reads the scene's window of tile `lane` and no other
    pixel. Its warp stores the outputs under that tile."""
    s = ConvShape(1, 1, 7, 8, 1, 3, 3, pad=1)
    x, w = integers(s)
    part, rung = part_of(s, m), find(f"conv/winograd-{m}x{m}")
    assert part.is_whole
    trace, _ = emulator.trace_launch(rung.build(s, rung.default_tiles), 1, {"x": x, "w": w})

    def elements(buffer: str, write: bool, tile: int) -> list[int]:
        at = (trace.buffer == trace.buffers.index(buffer)) & (trace.write == write)
        return sorted(trace.element[at & (trace.thread % 32 == tile)])

    for tile in range(32):
        real = tile < part.tiles
        window, out = (
            part.window(tile) if real else np.zeros(0, int),
            part.outputs(tile) if real else np.zeros(0, int),
        )
        assert elements("x", False, tile) == sorted(window[window >= 0])
        assert elements("y", True, tile) == sorted(out[out >= 0])


# -- halves of a transform -----------------------------------------------------------------------------
@settings(max_examples=20)
@given(shapes(max_size=8), st.sampled_from(KERNELS))
def test_second_half_of_each_transform_follows_from_the_first(s, kernel):
    """Xd Xᵀ, with the Xd on the stage, is what the next step writes for one channel and the first filter."""
    how, m = kernel
    x, w = integers(s)
    part = part_of(s, m)
    scene, tolerance = scene_of(how, part, x, w), 1e-5 * scale_of(s, m, x, w)
    AT, G, BT = winograd_matrices.derive(m, 3).arrays("float64")
    out_tiles = iter(range(part.tiles))
    for t in np.unique(scene._events("Xd")[0]):
        caption, Xd = scene.caption(t), scene.cells("Xd", t).reshape(part.T, part.T)
        X, name = next(
            pair
            for half, pair in {"G g": (G, "U"), "Bᵀ d": (BT, "V"), "Aᵀ Z": (AT, "y")}.items()
            if f"Xd = {half}" in caption
        )
        expected = (Xd[: len(X), : X.shape[1]] @ X.T).ravel()
        assert "Both halves" in scene.caption(t + 1)
        steps, _, values = scene._events(name)
        written = values[steps == t + 1]
        if name == "y":
            outputs = part.outputs(next(out_tiles))
            inside = outputs >= 0
            written, expected = scene.cells("y", t + 1)[outputs[inside]], expected[inside]
        np.testing.assert_allclose(written[: len(expected)], expected, rtol=0, atol=tolerance)
