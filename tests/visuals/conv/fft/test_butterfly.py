"""The butterflies on the stage: the transform of 8 numbers is NumPy's, step by step and in every caption."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import records
from tests.helpers.printed import number
from tests.visuals.conv.fft.test_scene import scene_of as fft_scene_of
from visuals.conv.fft import butterfly, filter_sizes
from visuals.conv.fft.butterfly import STAGES, N, butterflies, butterfly_scene, reversed_bits, scene_of, stages_of
from visuals.scene.payload import payload

VALUES = st.lists(st.floats(-1e4, 1e4, width=32), min_size=N, max_size=N)


def complex_cells(scene, name: str, t: int | None = None) -> np.ndarray:
    parts = scene.cells(name, t).astype("f8").reshape(2, -1)
    return parts[0] + 1j * parts[1]


def tolerance(x) -> float:
    return 1e-6 * (1 + np.abs(x).sum())


@settings(max_examples=20)
@given(VALUES)
def test_last_stage_is_numpy_s_transform(x):
    scene, expected = scene_of(np.array(x)), np.fft.fft(x)
    np.testing.assert_allclose(stages_of(x)[-1], expected, rtol=0, atol=1e-12 * (1 + np.abs(x).sum()))
    np.testing.assert_allclose(complex_cells(scene, "s3"), expected, rtol=0, atol=tolerance(x))
    phase = np.radians(scene.cells("phase").astype("f8"))
    np.testing.assert_allclose(scene.cells("size") * np.exp(1j * phase), expected, rtol=0, atol=tolerance(x))
    assert (np.abs(scene.cells("phase")) <= 180).all()


@settings(max_examples=20)
@given(VALUES)
def test_each_stage_holds_transforms_of_every_second_number(x):
    """After stage s, the block that begins at position p is NumPy's transform of the reordered numbers in it."""
    scene = scene_of(np.array(x))
    order = [reversed_bits(i) for i in range(N)]
    for stage in range(STAGES + 1):
        length = 1 << stage
        shown = complex_cells(scene, f"s{stage}")
        for p in range(0, N, length):
            inputs = sorted(order[p : p + length])  # in their order in x: equal distances
            expected = np.fft.fft(np.array(x)[inputs])
            np.testing.assert_allclose(shown[p : p + length], expected, rtol=0, atol=tolerance(x))


@settings(max_examples=20)
@given(VALUES)
def test_each_sum_equals_its_cell(x):
    scene = scene_of(np.array(x))
    for s in scene.sums:
        total = np.add.reduceat(s.factors * scene.cells(s.right)[s.cells], s.start[:-1])
        np.testing.assert_allclose(total, scene.cells(s.out), rtol=0, atol=tolerance(x))


def test_there_are_n_half_log_n_butterflies_and_each_writes_once():
    found = list(butterflies())
    assert len(found) == N // 2 * STAGES
    for stage in range(STAGES):
        positions = [p for one in found if one.stage == stage for p in (one.a, one.b)]
        assert sorted(positions) == list(range(N))
        assert {one.b - one.a for one in found if one.stage == stage} == {1 << stage}
    scene = scene_of(np.arange(8.0))
    assert int(scene.readings[0].values[-1]) == len(found)
    for n, one in enumerate(found):  # after 8 steps of reordering
        done = np.isfinite(complex_cells(scene, f"s{one.stage + 1}", 8 + n))
        before = np.isfinite(complex_cells(scene, f"s{one.stage + 1}", 7 + n))
        assert sorted(np.flatnonzero(done & ~before)) == [one.a, one.b]


def test_reordering_reads_the_position_backwards():
    assert [reversed_bits(i) for i in range(N)] == [0, 4, 2, 6, 1, 5, 3, 7]
    scene = scene_of(np.arange(8.0))
    np.testing.assert_array_equal(complex_cells(scene, "s0"), [0, 4, 2, 6, 1, 5, 3, 7])
    assert "Position 3 is 011 in binary. Read backwards that is 110 = 6" in scene.caption(3)


@settings(max_examples=20)
@given(st.lists(st.integers(-99, 99), min_size=N, max_size=N))
def test_numbers_in_the_captions_are_the_butterflies(x):
    scene, stages = scene_of(np.array(x, float)), stages_of(x)
    for n, one in enumerate(butterflies()):
        pairs = re.findall(r"\((−?[\d.]+), (−?[\d.]+)\)", scene.caption(8 + n))
        shown = [complex(number(real), number(imag)) for real, imag in pairs]
        a, b = stages[one.stage, [one.a, one.b]]
        expected = [a, b, *([one.twiddle, one.twiddle * b] if one.k else []), *stages[one.stage + 1, [one.a, one.b]]]
        np.testing.assert_allclose(shown, expected, rtol=1e-3, atol=1e-3)


def test_a_wrong_twiddle_factor_is_detected(monkeypatch):
    right = butterfly.twiddles()
    monkeypatch.setattr(butterfly, "twiddles", right.conj)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(stages_of(np.arange(8.0) ** 2)[-1], np.fft.fft(np.arange(8.0) ** 2), atol=1e-9)


@pytest.mark.parametrize("side", [4, 8, 12])
def test_the_row_is_one_of_the_padded_input(side):
    from kernels.conv.shape import ConvShape

    a, *_ = fft_scene_of(ConvShape(1, 1, side, side, 1, 3, 3))
    scene = butterfly_scene(a)
    x = scene.cells("x")
    rows = a.x_padded[0, 0, 0][:, :N]
    assert any((x[: rows.shape[1]] == row).all() for row in rows)
    assert not x[rows.shape[1] :].any()
    if side == N:  # the whole row: the first pass of the explaining order
        found = np.abs(np.fft.rfft(rows))
        assert any(np.allclose(scene.cells("size")[: N // 2 + 1], one, atol=1e-3) for one in found)
    assert "even_re[k] + turned_re" in scene.source.text.splitlines()[int(scene.source.lines[0]) - scene.source.first]
    assert "cuFFT’s kernels are not shown" in scene.order_note
    assert len(payload(scene)[1]) < 20_000


# -- recorded sizes ------------------------------------------------------------------------------------
def test_filter_sizes_compare_with_every_kernel_without_an_fft():
    from pages.conv.fft.address import REAL

    pairs = filter_sizes.by_filter_size(REAL.shape)
    assert set(pairs) == {1, 3, 5, 7, 9, 11}
    first = filter_sizes.wins_from(REAL.shape)
    assert first == 5
    for taps, pair in pairs.items():
        rows = records.recordings("conv")
        own = [r for r in rows if r["rung"] in ("conv/fft", "conv/fft-tiled") and r["shape"] == pair[1]["shape"]]
        assert pair[0]["median_ms"] == min(r["median_ms"] for r in own if r["mode"] == "cold")
        assert "fft" not in pair[1]["rung"]
        assert filter_sizes.is_faster(pair) == (taps >= first)
    assert pairs[5][1]["rung"] == "conv/cudnn-winograd-nonfused"  # not a kernel of the lesson


def test_the_best_layer_of_a_network_is_the_best_of_all():
    preset, ratio = filter_sizes.best_network_layer()
    assert preset.key.startswith(filter_sizes.NETWORKS)
    ours, other = filter_sizes.pair_at(preset.shape)
    assert ratio == ours["median_ms"] / other["median_ms"] > 1
