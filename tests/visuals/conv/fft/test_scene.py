"""The scene of the FFT: its cells are equal to the workspace of conv/fft, and to NumPy's transforms in float64."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import fft, fft_cpu, reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.model.program import INPUT, Launch
from kernels.runner import seeded_inputs
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes
from visuals.conv.fft import pictures
from visuals.conv.fft import scene as scene_module
from visuals.conv.fft.arrays import PAD, TOO_SMALL, Arrays, arrays_of, snap_to_integers
from visuals.conv.fft.scene import fft_scene
from visuals.conv.fft.steps import part_of
from visuals.conv.inputs import Inputs, outputs
from visuals.scene.payload import payload
from visuals.scene.scene import number

RUNG = fft.RUNGS[0]
TOLERANCE = 3e-6  # of the largest number, in float32
TILES = (0, 16, 32)


def whole_numbers(s: ConvShape, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(0, 10, s.x_shape).astype("f4"), "w": rng.integers(-2, 3, s.w_shape).astype("f4")}


def session_arrays(engine, s: ConvShape, tile: int, inputs) -> dict[str, np.ndarray]:
    """Returns every buffer after a run of conv/fft."""
    program = RUNG.build(s, RUNG.check(s, {"FFT_TILE": tile}))
    if engine is emulator:
        session = emulator.Session(program, inputs, Options())
        session.verify_run()
        return {b.name: session.memory.array(b.name) for b in program.buffers}
    session = cpu.open(program, inputs)
    session.verify_run()
    return session.arrays


def first_arrays(s: ConvShape, inputs, tile: int, padding: str = PAD) -> Arrays:
    return arrays_of(s, inputs["x"][0], inputs["w"][0], tile, padding)


def scene_of(s: ConvShape, tile: int = 0, padding: str = PAD, seed: int = 0):
    inputs = whole_numbers(s, seed)
    a, expected = first_arrays(s, inputs, tile, padding), reference.conv(s, **inputs)[0][0, 0]
    return a, fft_scene(a, s, padding, expected), expected


def complex_of(spectra: np.ndarray) -> np.ndarray:
    return spectra.view(np.complex64)[..., 0]


def assert_close(actual: np.ndarray, expected: np.ndarray, scale: float = 0.0) -> None:
    """Checks equality within the rounding of float32 among numbers up to `scale` (default: the largest expected
    one)."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * (scale or np.abs(expected).max()) + 1e-30)


# -- arrays against the kernels ---------------------------------------------------------------------
def same_as_a_run(engine, s: ConvShape, tile: int) -> None:
    inputs = seeded_inputs(RUNG.build(s, RUNG.default_tiles).of_role(INPUT))
    a, buffers = first_arrays(s, inputs, tile), session_arrays(engine, s, tile, inputs)
    np.testing.assert_array_equal(a.x_padded, buffers["x_padded"][0])
    np.testing.assert_array_equal(a.w_padded, buffers["w_padded"][0])
    assert_close(a.X, complex_of(buffers["x_spectra"])[0])
    assert_close(a.W, complex_of(buffers["w_spectra"])[0])
    assert_close(a.Y, complex_of(buffers["y_spectra"])[0, :, :, 0], a.max_product)
    assert_close(a.dense, buffers["y_padded"][0, :, :, 0], a.max_output * a.rows * a.columns)
    assert_close(a.y, buffers["y"][0, 0], a.max_output)


@settings(max_examples=20)
@given(conv_shapes(max_extent=3), st.sampled_from(TILES))
def test_arrays_equal_those_of_the_cpu_engine(s, tile):
    same_as_a_run(cpu, s, tile)


@pytest.mark.parametrize("tile", TILES)
def test_arrays_equal_those_of_the_emulated_kernels(tile):
    same_as_a_run(emulator, ConvShape(2, 3, 19, 17, 2, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(1, 2)), tile)
    same_as_a_run(emulator, ConvShape(1, 2, 8, 9, 3, 3, 3, mode="convolution"), tile)


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(TILES))
def test_arrays_equal_numpy_transforms_and_the_reference(s, tile):
    inputs = whole_numbers(s)
    a = first_arrays(s, inputs, tile)
    X, W = np.fft.rfft2(a.x_padded.astype("f8")), np.fft.rfft2(a.w_padded.astype("f8"))
    assert_close(a.X, X)
    assert_close(a.W, W)
    Y = (X * W.conj()).sum(axis=2)
    assert_close(a.Y, Y, a.max_product)
    size = a.rows * a.columns
    assert_close(a.dense, np.fft.irfft2(Y, (a.rows, a.columns)) * size, a.max_output * size)
    assert_close(a.y, reference.conv(s, **inputs)[0][0, 0], a.max_output)
    assert not a.wrapped_output.any()


def test_repeated_channels_are_all_counted():
    s = ConvShape(1, 7, 12, 11, 2, 3, 3, pad=1)
    inputs = Inputs(s, "digit", "sobel-x")
    times = np.bincount(np.arange(7) % 3)
    a = arrays_of(s, inputs.x(1, 3)[0], inputs.w(1, 3)[0], 0, times=times)
    assert_close(a.y, outputs(inputs, 1, s.P, s.Q)[0])
    assert_close(a.y, reference.conv(s, inputs.x(), inputs.w())[0][0, 0])


def test_a_filter_that_does_not_fit_is_refused():
    s = ConvShape(1, 1, 40, 40, 1, 3, 3, dilation=8)
    with pytest.raises(ValueError, match="covers 17 x 17 does not fit a transform of 16 x 16"):
        first_arrays(s, whole_numbers(s), 16)


# -- cells against the arrays -------------------------------------------------------------------------
def cells_are_the_arrays(scene, a: Arrays) -> None:
    """Compares every tensor of the last step with the part of its array that it shows."""
    p = part_of(a)
    rows, frequencies, maps = p.rows, p.columns // 2 + 1, p.maps
    at = p.down, p.across
    y, x = scene.tensor("y"), scene.tensor("x")
    expected = {
        "x": (a.x[:maps, x.origin[1] : x.origin[1] + x.rows, x.origin[2] : x.origin[2] + x.cols], 0),
        "xp": (a.x_padded[p.block][:maps], 0),
        "wp": (a.w_padded[:maps, :rows, : p.columns], 0),
        "X": (np.abs(a.X[at][:maps, :rows, :frequencies]), np.abs(a.X).max()),
        "W": (np.abs(a.W[:maps, :rows, :frequencies]), np.abs(a.W).max()),
        "Y": (np.abs(a.Y[at][:rows, :frequencies]), a.max_product),
        "d": (a.dense[p.block], a.max_output * a.rows * a.columns),
        "y": (a.y[y.origin[1] : y.origin[1] + y.rows, y.origin[2] : y.origin[2] + y.cols], a.max_output),
    }
    for name, (values, scale) in expected.items():
        actual = scene.cells(name)
        assert np.isfinite(actual).all(), name
        np.testing.assert_allclose(actual, values.ravel(), rtol=0, atol=TOLERANCE * scale, err_msg=name)


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(TILES), st.sampled_from([PAD, TOO_SMALL]))
def test_last_step_shows_the_arrays(s, tile, padding):
    a, scene, _ = scene_of(s, tile, padding)
    cells_are_the_arrays(scene, a)


@every(
    "s",
    [
        ConvShape(1, 3, 40, 37, 2, 3, 3, pad=1),
        ConvShape(1, 1, 70, 50, 1, 7, 5, stride=(3, 2), pad=(0, 2)),
        ConvShape(1, 2, 3, 3, 1, 1, 1, stride=8, pad=8),
    ],
)
@every("tile", TILES)
def test_part_of_large_arrays_has_the_right_offset(s, tile):
    a, scene, _ = scene_of(s, tile)
    cells_are_the_arrays(scene, a)
    p = part_of(a)
    assert scene.tensor("xp").partial == ((p.rows, p.columns) != (a.rows, a.columns))


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(TILES))
def test_magnitudes_and_phases_make_the_spectra(s, tile):
    """Both scenes together: |X| · e^(i phase) is the array, in every cell of X, W and Y."""
    inputs = whole_numbers(s)
    a, expected = first_arrays(s, inputs, tile), reference.conv(s, **inputs)[0][0, 0]
    magnitudes, phases = (fft_scene(a, s, PAD, expected, phases=shown) for shown in (False, True))
    p = part_of(a)
    rows, frequencies, maps, at = p.rows, p.columns // 2 + 1, p.maps, (p.down, p.across)
    for name, spectrum, scale in (
        ("X", a.X[at][:maps, :rows, :frequencies], np.abs(a.X).max()),
        ("W", a.W[:maps, :rows, :frequencies], np.abs(a.W).max()),
        ("Y", a.Y[at][:rows, :frequencies], a.max_product),
    ):
        angle = phases.cells(name).astype("f8")
        assert (np.abs(angle) <= 180).all()
        found = magnitudes.cells(name) * np.exp(1j * np.radians(angle))
        np.testing.assert_allclose(found, spectrum.ravel(), rtol=0, atol=TOLERANCE * scale, err_msg=name)
    assert phases.steps == magnitudes.steps and phases.key != magnitudes.key
    np.testing.assert_array_equal(phases.cells("y"), magnitudes.cells("y"))


def test_the_product_is_written_out_as_complex_numbers():
    """Of each MULTIPLY step: X · conj(W) of the numbers in the caption is the Y in it."""
    a, scene, _ = scene_of(ConvShape(1, 1, 8, 8, 1, 3, 3))
    for t in range(scene.steps):
        args = scene.captions.args[t]
        if "X · conj(W)" in scene.caption(t):
            X, W, Y = args[2:8:2] + 1j * args[3:8:2]
            assert_close(np.array(X * W.conjugate()), np.array(Y), a.max_product)
            assert f"So Y = ({number(Y.real)}, {number(Y.imag)})." in scene.caption(t)


def test_wrong_writes_are_detected():
    a, scene, _ = scene_of(ConvShape(1, 2, 7, 6, 1, 3, 2, pad=1))
    for n, write in enumerate(scene.writes):
        if write.index is not None:
            wrong = replace(write, index=np.roll(write.index, 1))
        else:
            wrong = replace(write, values=np.roll(write.values, 1))
        writes = (*scene.writes[:n], wrong, *scene.writes[n + 1 :])
        with pytest.raises(AssertionError):
            cells_are_the_arrays(replace(scene, writes=writes), a)


def test_product_without_the_conjugate_is_detected(monkeypatch):
    s = ConvShape(1, 2, 7, 6, 1, 3, 2)
    same_as_a_run(cpu, s, 0)
    expected = fft_cpu.multiply
    flipped = [*RUNG.build(s, RUNG.default_tiles).steps]
    assert any(step.cpu is expected for step in flipped)
    monkeypatch.setattr(fft_cpu, "multiply", lambda X, W, *rest: expected(X, W * np.float32([1, -1]), *rest))
    a = first_arrays(s, whole_numbers(s), 0)
    with pytest.raises(AssertionError):
        assert_close(a.y, reference.conv(s, **whole_numbers(s))[0][0, 0])


def test_the_steps_go_from_padding_to_picking():
    s = ConvShape(1, 1, 8, 8, 1, 3, 3)
    a, scene, _ = scene_of(s)
    assert scene.steps == 2 + 2 * (8 + 5) + 8 + 8 + 6

    def done(name: str, t: int) -> bool:
        return bool(np.isfinite(scene.cells(name, t)).all())

    ends = [next(t for t in range(scene.steps) if done(name, t)) for name in ("xp", "wp", "X", "W", "Y", "d", "y")]
    assert ends == sorted(ends) and ends[-1] == scene.steps - 1
    rows = np.abs(np.fft.rfft(a.x_padded[0, 0, 0].astype("f8"), axis=-1))
    assert_close(scene.cells("X", 1 + 8).reshape(8, 5), rows)  # after the first pass: rows alone


# -- annotations of cells ----------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes(max_extent=3), st.sampled_from(TILES))
def test_annotations_have_the_numbers_of_the_arrays(s, tile):
    a, scene, _ = scene_of(s, tile)
    p, annotations_by_tensor = part_of(a), {t.tensor: t for t in scene.annotations}
    rows, frequencies = p.rows, p.columns // 2 + 1
    X = a.X[p.down, p.across][: p.maps, :rows, :frequencies].ravel()
    args = annotations_by_tensor["X"].captions.args
    assert_close(args[:, 0] + 1j * args[:, 1], X)
    args = annotations_by_tensor["Y"].captions.args
    parts = args[:, ::2] + 1j * args[:, 1::2]
    total = sum(parts[:, 2 * c] * parts[:, 2 * c + 1].conj() for c in range(p.maps)) + parts[:, -2]
    assert_close(total, parts[:, -1], a.max_product)
    links = annotations_by_tensor["Y"].links["X"]
    assert_close(scene.cells("X")[links[:, 0]], np.abs(parts[:, 0]), np.abs(a.X).max())
    y, d = scene.cells("y"), scene.cells("d")[annotations_by_tensor["y"].links["d"][:, 0]]
    assert_close(d / (a.rows * a.columns), y, a.max_output)


def test_snap_to_integers_removes_only_float32_rounding():
    snapped = snap_to_integers(np.array([1.0000001, -2e-7, 0.4999, 2.51]), 8.0)
    assert snapped.tolist() == [1.0, 0.0, 0.4999, 2.51]


# -- wrap-around -------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes(max_extent=3))
def test_too_small_a_transform_gives_the_circular_sum(s):
    """Computed by the definition, index modulo the size. Only windows that extend over the end may be wrong."""
    inputs = whole_numbers(s)
    a = first_arrays(s, inputs, 0, TOO_SMALL)
    padded = np.pad(inputs["x"][0].astype("f8"), ((0, 0), *s.pad_widths))[:, : a.rows, : a.columns]
    w = inputs["w"][0].astype("f8")
    w = w[:, ::-1, ::-1] if s.flip else w
    circular = np.zeros((s.P, s.Q))
    over = np.zeros((s.P, s.Q), bool)
    for p, q, r, t in np.ndindex(s.P, s.Q, s.R, s.S):
        h, v = p * s.u + r * s.dilation_h, q * s.v + t * s.dilation_w
        circular[p, q] += (padded[:, h % a.rows, v % a.columns] * w[:, r, t]).sum()
        over[p, q] |= h >= a.rows or v >= a.columns
    assert_close(a.y, circular, a.max_output)
    np.testing.assert_array_equal(a.wrapped_output, over)
    expected = reference.conv(s, **inputs)[0][0, 0]
    wrong = pictures.wrong(a, expected)
    assert not (wrong & ~over).any()
    assert a.rows == max(s.padded_h - s.span_h + 1, s.span_h)


def test_the_toy_wraps_in_its_last_two_rows_and_columns():
    s = CONV_PRESETS["toy"].shape
    a, scene, expected = scene_of(s, 0, TOO_SMALL)
    wraps = np.ones((6, 6), bool)
    wraps[:4, :4] = False
    np.testing.assert_array_equal(a.wrapped_output, wraps)
    assert scene.readings[-1].values[-1] == wraps.sum()
    assert "wrap around the end" in scene.caption(scene.steps - 1)
    np.testing.assert_array_equal(scene.cells("right"), expected.ravel().astype("f4"))
    bad = pictures.wrong(a, expected).sum()
    sentence = f"In transforms of 6 × 6, 20 of 36 outputs wrap around; {bad} are wrong."
    assert 0 < bad <= wraps.sum() and pictures.sentence(a, expected) == sentence
    reason = pictures.reason(first_arrays(s, whole_numbers(s), 0), a)
    assert "In 6 × 6, windows near the end" in reason and "In 8 × 8 none wraps around." in reason
    assert "right" not in {t.name for t in scene_of(s)[1].tensors}


def test_a_filter_of_one_tap_cannot_wrap():
    s = ConvShape(1, 2, 6, 6, 1, 1, 1)
    a, _, expected = scene_of(s, 0, TOO_SMALL)
    assert not a.wrapped_output.any()
    assert "nothing can wrap around" in pictures.sentence(a, expected)
    assert pictures.reason(a, a) == ""


def test_stage_and_captions_use_the_same_names():
    _, scene, _ = scene_of(CONV_PRESETS["toy"].shape)
    titles = {t.name: t.title for t in scene.tensors}
    captions = " ".join(scene.caption(t) for t in range(scene.steps))
    for name in ("X", "W", "Y", "d"):
        assert titles[name].startswith(name) and name in captions.split()
    assert titles["Y"] in captions.replace("conj(W).", "conj(W)")


# -- pictures, source, size ----------------------------------------------------------------------------
@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(1, 12))
def test_whole_spectrum_equals_numpy_fft2(rows, columns):
    x = np.random.default_rng([rows, columns]).normal(size=(rows, columns))
    whole = pictures.whole_spectrum(np.fft.rfft2(x), columns)
    np.testing.assert_allclose(whole, np.fft.fftshift(np.fft.fft2(x)), atol=1e-12 * rows * columns)


@settings(max_examples=25)
@given(st.integers(1, 600), st.integers(1, 600))
def test_smaller_picture_keeps_its_mean(rows, columns):
    values = np.full((rows, columns), 3.0)
    small = pictures.smaller(values)
    assert max(small.shape) <= pictures.MAX_PX and min(small.shape) >= 1
    assert (small == 3).all()


def test_listing_contains_the_kernels_verbatim():
    text, highlighted = scene_module.listing()
    lines = text.splitlines()
    program = RUNG.build(ConvShape(1, 1, 8, 8, 1, 3, 3), RUNG.default_tiles)
    for step in program.steps:
        line = lines[highlighted[step.name] - 1]
        if isinstance(step, Launch):
            assert scene_module.MARKS[step.name] in line
            kernel = sources.text(step.source)
            assert kernel[kernel.index('extern "C"') :].strip() in text
        else:
            assert line == f"// cuFFT {step.args[0]} -> {step.args[1]}"


@pytest.mark.parametrize("key", [*CONV_PRESETS][::3])
@pytest.mark.parametrize("padding", [PAD, TOO_SMALL])
def test_every_preset_makes_a_small_scene(key, padding):
    s = CONV_PRESETS[key].shape
    inputs = Inputs(s, "digit", "sobel-x")
    maps = min(s.C, 3)
    times = np.bincount(np.arange(s.C) % maps)
    for tile in TILES:
        a = arrays_of(s, inputs.x(1, maps)[0], inputs.w(1, maps)[0], tile, padding, times)
        scene = fft_scene(a, s, padding, outputs(inputs, 1, s.P, s.Q)[0])
        meta, block = payload(scene)
        size = len(block) + len(json.dumps(meta))
        assert size < (100_000 if key == "toy" and not tile else 150_000)
        whole = (s.C, a.tiles) == (part_of(a).maps, (1, 1)) and not scene.tensor("xp").partial
        assert any("of" in t.note for t in scene.tensors) or whole


def test_the_scene_of_the_fft_in_tiles_has_its_own_kernels_and_the_same_numbers():
    s = ConvShape(1, 1, 8, 8, 1, 3, 3)
    a, whole, expected = scene_of(s)
    tiled = fft_scene(a, s, PAD, expected, rung=scene_module.IN_TILES)
    for name in ("xp", "X", "W", "Y", "d", "y"):
        np.testing.assert_array_equal(tiled.cells(name), whole.cells(name))
    text, lit = scene_module.tiled_listing()
    lines = text.splitlines()
    for kind, (_, mark) in scene_module.TILED_MARKS.items():
        assert mark in lines[lit[kind] - 1]
    assert "cuFFT" not in " ".join(tiled.captions.templates) + tiled.order_note + text
    assert tiled.key != whole.key
