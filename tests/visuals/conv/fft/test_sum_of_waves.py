"""The sum of waves on the stage: the waves add up to the row, and the products to the slid filter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.shape import ConvShape
from tests.visuals.conv.fft.test_scene import scene_of as fft_scene_of
from visuals.conv.fft import sum_of_waves
from visuals.conv.fft.sum_of_waves import WAVES, N, scene_of, waves_scene
from visuals.scene.payload import payload
from visuals.scene.scene import number

ROWS = st.lists(st.floats(-1e4, 1e4, width=32), min_size=N, max_size=N)
X = np.array([0, 3, 5, 6, 7, 2, 1, 0.0])
W = np.array([-1, 0, 2, 0, 0, 0, 0, 0.0])


def slid(x, w) -> np.ndarray:
    """Returns the correlation of w with x by its definition; the end wraps around."""
    return np.array([sum(float(x[(j + t) % N]) * float(w[t]) for t in range(N)) for j in range(N)])


def spectrum(scene, name: str, t: int | None = None) -> np.ndarray:
    size, phase = (scene.cells(name + part, t).astype("f8") for part in ("size", "phase"))
    return size * np.exp(1j * np.radians(phase))


@settings(max_examples=20)
@given(ROWS, ROWS)
def test_waves_add_up_to_the_row_and_products_to_the_slid_filter(x, w):
    scene = scene_of(np.array(x), np.array(w))
    scale = 1 + np.abs(x).sum()
    both = scale * (1 + np.abs(w).sum())
    np.testing.assert_allclose(scene.cells("sum"), x, rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(scene.cells("y"), slid(x, w), rtol=0, atol=1e-5 * both)
    np.testing.assert_allclose(spectrum(scene, "X"), np.fft.rfft(x), rtol=0, atol=1e-5 * scale)
    expected = np.fft.rfft(x) * np.fft.rfft(w).conj()
    np.testing.assert_allclose(spectrum(scene, "Y"), expected, rtol=0, atol=1e-5 * both)
    for name, total in (("X", "sum"), ("Y", "y")):
        waves = scene.cells(f"{name}waves").astype("f8").reshape(WAVES, N)
        np.testing.assert_allclose(waves.sum(axis=0), scene.cells(total), rtol=0, atol=1e-5 * both)


def test_each_row_of_the_waves_has_one_frequency():
    waves = scene_of(X, W).cells("Xwaves").reshape(WAVES, N)
    for k in range(WAVES):
        others = np.delete(np.abs(np.fft.rfft(waves[k])), k)
        assert np.abs(others).max() < 1e-5


def test_the_sum_so_far_is_that_of_the_waves_so_far():
    scene = scene_of(X, W)
    for k in range(WAVES):
        t = 3 + 3 * k
        waves = scene.cells("Xwaves", t).reshape(WAVES, N)
        np.testing.assert_allclose(np.nansum(waves, axis=0), scene.cells("sum", t), atol=1e-5)
        assert np.isnan(waves[k + 1 :]).all()
    assert np.isnan(scene.cells("Ysize", t)).all()  # the filter comes later


def test_captions_have_the_numbers_of_the_cells():
    scene = scene_of(X, W)
    for k in range(WAVES):
        size, phase = (float(scene.cells(f"X{part}")[k]) for part in ("size", "phase"))
        text = scene.caption(1 + 3 * k)
        assert number(float(f"{size:.3g}")) in text and number(float(f"{phase:.3g}")) in text
        x, w, y = (number(float(f"{scene.cells(name)[k]:.3g}")) for name in ("Xsize", "Wsize", "Ysize"))
        assert f"{x} · {w} = {y}" in scene.caption(17 + 2 * k)
    assert scene.caption(15).endswith("the sum of the waves is x.")
    assert "y[0] = 10 = 0·(−1) + 3·0 + 5·2" in scene.caption(scene.steps - 1)


def test_a_cell_of_a_spectrum_names_its_complex_number():
    scene, spectrum_of_x = scene_of(X, W), np.fft.rfft(X)
    for annotation in scene.annotations[:2]:
        text = annotation.captions.templates[0].format(*map(number, annotation.captions.args[1]))
        assert f"X[1] = ({number(spectrum_of_x[1].real)}" in text, text


def test_the_product_of_the_kernel_is_lit_at_each_product():
    scene = scene_of(X, W)
    lit = [t for t in range(scene.steps) if scene.source_at(t)[1]]
    assert lit == [17, 19, 21, 23, 25]
    source, line = scene.source_at(17)
    assert "sum[i][j].x += x[i].x * w[j].x" in source.text.splitlines()[line - source.first]


def test_a_phase_with_the_wrong_sign_is_noticed(monkeypatch):
    right = sum_of_waves.polar
    monkeypatch.setattr(sum_of_waves, "polar", lambda X: (right(X)[0], -right(X)[1]))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(scene_of(X, W).cells("sum"), X, atol=1e-3)


def test_rows_come_from_the_padded_input_and_the_filter():
    a, *_ = fft_scene_of(ConvShape(1, 1, 8, 8, 1, 3, 3))
    scene = waves_scene(a)
    rows = a.x_padded[0, 0, 0]
    assert any((scene.cells("x") == row[:N]).all() for row in rows)
    assert any((scene.cells("w")[:3] == row).all() for row in a.w[0])
    payload(scene)
