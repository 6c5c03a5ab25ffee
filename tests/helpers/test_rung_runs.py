"""The helpers of the rung tests can fail: they detect a race, a dependence on order and a wrong output."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import sources
from kernels.engines import cpu, emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.rung_runs import (
    computed,
    legal,
    runs_or_names_its_rule,
    same_in_any_order,
    verified_output,
    without_barrier,
)

TILED, NAIVE = find("gemm/shared-tile"), find("gemm/naive")
SHAPE = GemmShape(32, 32, 64)  # whole tiles


@needs_nvrtc
def test_race_without_changed_value_is_detected(monkeypatch):
    """Without its second barrier the kernel overwrites tiles that are still read. All values are 1, so none changes."""

    def compile_without_barrier(source, defines):
        text = without_barrier(1)(sources.translation_unit(source))
        return compile_ptx(text, "kernel.cu", precompiled.options(defines))

    ones = {"A": np.ones((32, 64), "f4"), "B": np.ones((64, 32), "f4")}
    same_in_any_order(lambda options: verified_output(emulator, TILED, SHAPE, inputs=ones, options=options))
    monkeypatch.setattr(precompiled, "ptx", compile_without_barrier)
    with pytest.raises(AssertionError, match="data race"):
        same_in_any_order(lambda options: computed(emulator, TILED, SHAPE, inputs=ones, options=options)[0])


def test_dependence_on_order_is_detected():
    with pytest.raises(AssertionError, match="not equal"):
        same_in_any_order(lambda options: np.array([options.order == "reversed"]))


@pytest.mark.parametrize("engine", [cpu, emulator])
def test_one_wrong_element_is_detected(engine, monkeypatch):
    original = engine.Session.verify_run

    def wrong(session):
        out = np.array(original(session))
        out[3, 4] += 1e-2
        return out

    verified_output(engine, NAIVE, SHAPE)
    monkeypatch.setattr(engine.Session, "verify_run", wrong)
    with pytest.raises(AssertionError, match="gemm/naive M32 N32 K64"):
        verified_output(engine, NAIVE, SHAPE)


def test_wrong_rule_text_is_detected():
    tiles = {"BM": 8, "BN": 32, "BK": 8}
    assert tiles not in legal(TILED, SHAPE)
    runs_or_names_its_rule(TILED, SHAPE, tiles, "<=|==|whole warps")
    with pytest.raises(AssertionError):
        runs_or_names_its_rule(TILED, SHAPE, tiles, "something else")
