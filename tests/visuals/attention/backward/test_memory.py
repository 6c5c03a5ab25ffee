"""Memory over N on the stage: its bytes are those of the programs, and a column has a cell for each factor of four."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.attention.backward.ladder import LADDER
from kernels.attention.backward.shape import AttentionBackwardShape
from visuals.attention.backward import memory
from visuals.attention.backward.memory import CHARTS, FACTOR, LENGTHS, kept, memory_scene
from visuals.attention.backward.notes import ATOMIC, NAIVE

REAL = AttentionBackwardShape(4, 16, 2048, 64)


@pytest.mark.parametrize(("rung", "numbers"), [(NAIVE, lambda N: 2 * N + 2), (ATOMIC, lambda N: 2)])
def test_kept_bytes_are_the_workspace_and_the_row_sums(rung, numbers):
    for N in LENGTHS[:3]:
        s = REAL.with_(N=N)
        program = LADDER.rung(rung).build(s, LADDER.rung(rung).default_tiles)
        assert kept(rung, s) == 4 * s.heads * N * numbers(N)
        others = sum(b.nbytes for b in program.buffers if b.name in ("Q", "K", "V", "O", "dO", "dQ", "dK", "dV"))
        assert kept(rung, s) + others == program.nbytes()


def test_a_column_grows_by_a_cell_for_each_factor_of_four():
    scene = memory_scene(REAL)
    for rung, (name, *_) in CHARTS.items():
        tensor = scene.tensor(name)
        cells = scene.cells(name).reshape(tensor.rows, tensor.cols)
        filled = (~np.isnan(cells)).sum(axis=0)
        least = kept(ATOMIC, REAL.with_(N=LENGTHS[0]))
        for N, count in zip(LENGTHS, filled, strict=True):
            times = kept(rung, REAL.with_(N=N)) / least
            assert FACTOR ** (count - 1) <= times * 1.001 < FACTOR**count * 1.001
        for column in cells.T:  # from the bottom up, without holes
            assert not np.isnan(column[len(column) - (~np.isnan(column)).sum() :]).any()


def test_each_step_writes_one_column_and_names_its_bytes():
    scene = memory_scene(REAL)
    assert scene.steps == len(LENGTHS)
    at = LENGTHS.index(REAL.N)
    assert "N = 2,048" in scene.caption(at) and "2.15 GB" in scene.caption(at) and "1.05 MB" in scene.caption(at)
    assert f"{2 * REAL.N + 2:,} numbers" in scene.caption(at)  # P and dS, and L and D
    for step in range(scene.steps):
        for name, *_ in CHARTS.values():
            cells = scene.cells(name, step).reshape(-1, len(LENGTHS))
            assert np.isnan(cells[:, step + 1 :]).all() and not np.isnan(cells[-1, : step + 1]).any()


def test_the_caption_names_the_device_only_where_the_matrices_do_not_fit(monkeypatch):
    size = kept(NAIVE, REAL)
    monkeypatch.setattr(memory, "capacity", lambda: ("GPU", size))
    scene = memory_scene(REAL)
    at = LENGTHS.index(REAL.N)
    named = ["of one GPU" in scene.caption(step) for step in range(scene.steps)]
    assert named == [step > at for step in range(scene.steps)]


def test_sixteen_bits_and_a_mask_change_nothing():
    """Both rungs compute in FP32 and keep whole matrices."""
    texts = [memory_scene(s).caption(4) for s in (REAL, REAL.with_(dtype="fp16"), REAL.with_(causal=1))]
    assert len(set(texts)) == 1
