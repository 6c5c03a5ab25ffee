"""The scenes of the FFT's kernels: their cells are those of the kernels. The arrays of the cards are those of a run of conv/fft."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import fft, fft_cpu, fft_tiled, reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.runner import seeded_inputs
from tests.helpers.shapes import conv_shapes
from visuals.conv.direct.scene import arrays
from visuals.conv.fft import pictures
from visuals.conv.fft.arrays import PAD, TOO_SMALL, Arrays, arrays_of, snap_to_integers
from visuals.conv.fft.scene import IN_TILES, WHOLE, fft_scene, shown
from visuals.conv.fft.views import grid
from visuals.conv.inputs import Inputs, outputs
from visuals.scene.payload import payload
from visuals.scene.scene import Scene, number

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


def scene_of(
    s: ConvShape, tile: int = 0, padding: str = PAD, rung: str = WHOLE, phases: bool = False
) -> tuple[Arrays, Scene]:
    """Returns the arrays of the convolution on the stage and its scene."""
    inputs, part = Inputs(s, "random", "random"), shown(s)
    given = arrays(inputs, part)
    tiles = find(rung).default_tiles | {"FFT_TILE": tile}
    return first_arrays(part, given, tile, padding), fft_scene(inputs, rung, tiles, padding, phases)


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


# -- cells against a run of the kernels ----------------------------------------------------------------
HARD = ConvShape(1, 2, 19, 17, 2, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), mode="convolution")
TOY = CONV_PRESETS["toy"].shape


@pytest.mark.parametrize(
    ("s", "tile", "padding"), [(TOY, 0, PAD), (HARD, 0, PAD), (HARD, 16, PAD), (TOY, 0, TOO_SMALL)]
)
def test_cells_are_the_arrays_of_the_steps(s, tile, padding):
    a, scene = scene_of(s, tile, padding)
    half = a.columns // 2 + 1
    expected = {
        "xp": (a.x_padded, 0), "wp": (a.w_padded, 0), "X": (np.abs(a.X), 0), "W": (np.abs(a.W), 0),
        "Y": (np.abs(a.Y), a.max_product), "d": (a.dense, a.max_output * a.rows * a.columns), "y": (a.y, a.max_output),
    }  # fmt: skip
    for name, (values, scale) in expected.items():
        np.testing.assert_allclose(
            scene.cells(name), values.ravel(), rtol=0, atol=TOLERANCE * (scale or np.abs(values).max()), err_msg=name
        )
    assert (scene.tensor("X").rows, scene.tensor("X").cols) == (a.rows, half)


@pytest.mark.parametrize("s", [TOY, HARD, ConvShape(1, 1, 4, 4, 1, 3, 3)])
def test_cells_in_tiles_are_those_of_the_kernels(s):
    _, scene = scene_of(s, 8, rung=IN_TILES)
    part, rung = shown(s), find(IN_TILES)
    given = arrays(Inputs(s, "random", "random"), part)
    session = emulator.Session(rung.build(part, rung.default_tiles | {"FFT_TILE": 8}), given, Options())
    session.verify_run()
    cells = grid(8)
    for name, rows in (("U", part.C), ("V", part.C), ("Z", part.K)):
        found = session.memory.array(name).reshape(fft_tiled.frequencies(8), 2, rows, -1)[..., 0, 0]
        np.testing.assert_allclose(
            scene.cells(name)[cells], np.abs(found[:, 0] + 1j * found[:, 1]), rtol=1e-4, atol=1e-4 * np.abs(found).max()
        )
        assert np.isnan(scene.cells(name)).sum() == 8 * 5 - len(cells)
    exact, scale = reference.conv(part, **given)
    np.testing.assert_allclose(scene.cells("y"), exact.ravel(), rtol=0, atol=1e-5 * scale.max())


def test_a_spectrum_in_tiles_is_that_of_numpy_without_conjugates():
    _, scene = scene_of(TOY, 8, rung=IN_TILES)
    whole = np.abs(np.fft.rfft2(scene.cells("x").reshape(8, 8).astype("f8"))).ravel()
    found = scene.cells("V")
    there = np.isfinite(found)
    np.testing.assert_allclose(found[there], whole[there], rtol=0, atol=1e-4 * whole.max())


@pytest.mark.parametrize(("rung", "names"), [(WHOLE, "XWY"), (IN_TILES, "UVZ")])
def test_magnitudes_and_phases_are_those_of_the_numbers_in_the_notes(rung, names):
    (_, magnitudes), (_, phases) = (scene_of(TOY, 8 * (rung == IN_TILES), rung=rung, phases=p) for p in (False, True))
    assert phases.steps == magnitudes.steps and phases.key != magnitudes.key
    np.testing.assert_array_equal(phases.cells("y"), magnitudes.cells("y"))
    for name in names[:2]:
        args = next(note for note in magnitudes.annotations if note.tensor == name).captions.args
        there = np.isfinite(magnitudes.cells(name))
        numbers = (args[:, 0] + 1j * args[:, 1])[there]
        found = magnitudes.cells(name) * np.exp(1j * np.radians(phases.cells(name)))
        np.testing.assert_allclose(found[there], numbers, rtol=0, atol=1e-5 * np.abs(numbers).max())


@pytest.mark.parametrize("s", [TOY, ConvShape(1, 2, 8, 8, 1, 3, 3)])
def test_the_product_is_written_out_as_complex_numbers(s):
    """In the note of each cell, and in the captions of the steps."""
    a, scene = scene_of(s)
    note = next(note for note in scene.annotations if note.tensor == "Y")
    parts = note.captions.args[:, ::2] + 1j * note.captions.args[:, 1::2]
    total = sum(parts[:, 2 * c] * parts[:, 2 * c + 1].conj() for c in range(s.C))
    assert_close(total, parts[:, -1], a.max_product)
    assert_close(parts[:, -1], a.Y.ravel(), a.max_product)
    captions = [scene.caption(t) for t in range(scene.steps)]
    (first,) = (caption for caption in captions if "block 0 multiplies" in caption)
    Y = a.Y[0, 0, 0, 1]
    assert f"Y = ({number(float(Y.real))}, {number(float(Y.imag))})." in first
    assert ("Over all channels" in first) == (s.C > 1)


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


# -- rounding ------------------------------------------------------------------------------------------
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
    a, scene = scene_of(TOY, 0, TOO_SMALL)
    wraps = np.ones((6, 6), bool)
    wraps[:4, :4] = False
    np.testing.assert_array_equal(a.wrapped_output, wraps)
    said = [
        int(scene.caption(t).partition("windows of ")[2].partition(" of")[0])
        for t in range(scene.steps - 6, scene.steps)
    ]
    assert said == wraps.sum(axis=1).tolist()
    given = arrays(Inputs(TOY, "random", "random"), TOY.with_(K=1))
    expected = reference.conv(TOY.with_(K=1), **given)[0]
    np.testing.assert_array_equal(scene.cells("right"), expected.ravel().astype("f4"))
    small, expected = (
        first_arrays(TOY, whole_numbers(TOY), 0, TOO_SMALL),
        reference.conv(TOY, **whole_numbers(TOY))[0][0, 0],
    )
    bad = pictures.wrong(small, expected).sum()
    sentence = f"In transforms of 6 × 6, 20 of 36 outputs wrap around; {bad} are wrong."
    assert 0 < bad <= wraps.sum() and pictures.sentence(small, expected) == sentence
    reason = pictures.reason(first_arrays(TOY, whole_numbers(TOY), 0), small)
    assert "In 6 × 6, windows near the end" in reason and "In 8 × 8 none wraps around." in reason
    assert "right" not in {t.name for t in scene_of(TOY)[1].tensors}


def test_a_filter_of_one_tap_cannot_wrap():
    s = ConvShape(1, 2, 6, 6, 1, 1, 1)
    a = first_arrays(s, whole_numbers(s), 0, TOO_SMALL)
    assert not a.wrapped_output.any()
    assert "nothing can wrap around" in pictures.sentence(a, reference.conv(s, **whole_numbers(s))[0][0, 0])
    assert pictures.reason(a, a) == ""


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


@pytest.mark.parametrize(
    ("rung", "files"),
    [
        (WHOLE, ["10_fft_pad_input.cu", "10_fft_pad_filter.cu", "cufft_input", "cufft_filter", "10_fft_multiply.cu", "cufft_output", "10_fft_pick.cu"]),
        (IN_TILES, ["50_fft_tiled_filter.cu", "51_fft_tiled_input.cu", "52_fft_tiled_product.cu", "53_fft_tiled_output.cu"]),
    ],
)  # fmt: skip
def test_the_steps_follow_the_launches_and_calls(rung, files):
    _, scene = scene_of(TOY, rung=rung)
    assert list(dict.fromkeys(scene.source_at(t)[0].file for t in range(scene.steps))) == files
    assert not any("{" in scene.caption(t) for t in range(scene.steps))
    assert ("cuFFT" in scene.order_note) == (rung == WHOLE)


@pytest.mark.parametrize("key", [*CONV_PRESETS][::5])
def test_every_preset_makes_a_small_scene(key):
    s = CONV_PRESETS[key].shape
    for padding in (PAD, TOO_SMALL):
        scene = fft_scene(Inputs(s, "digit", "sobel-x"), WHOLE, RUNG.default_tiles, padding)
        meta, block = payload(scene)
        assert len(block) + len(json.dumps(meta)) < 150_000
