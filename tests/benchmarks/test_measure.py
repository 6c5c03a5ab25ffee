"""Verification of candidates, with sessions that run no GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import measure
from benchmarks.measure import Failure, Verified
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.model.program import UnsupportedError
from kernels.records import availability
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.shape import SoftmaxShape

LADDER, SHAPE = softmax_ladder.LADDER, SoftmaxShape(3, 5)
CORRECT, WRONG, UNSUPPORTED, BROKEN = ((rung, rung.default_tiles) for rung in softmax_ladder.RUNGS[:4])


@pytest.fixture
def problem():
    return measure.problem(SHAPE, softmax_ladder.buffers(SHAPE), LADDER.reference)


@pytest.fixture
def opened(monkeypatch, problem):
    """The sessions that are open. They run CORRECT, WRONG, UNSUPPORTED and BROKEN in this order."""
    sessions, runs = (set(), iter((problem.ref, problem.ref + 1, UnsupportedError("no"), RuntimeError("fault"))))

    class Session:
        def __init__(self, program, inputs):
            self.program = program
            sessions.add(self)

        def verify_run(self):
            result = next(runs)
            if isinstance(result, Exception):
                raise result
            return result.astype(np.float32)

        def close(self):
            sessions.remove(self)

    monkeypatch.setattr(cuda, "open", Session)
    return sessions


def test_only_a_correct_candidate_stays_open(opened, problem, capsys):
    chosen = (CORRECT, WRONG, UNSUPPORTED, BROKEN)
    verified, failed = measure.open_verified(chosen, problem)
    assert [(v.rung, v.tiles) for v in verified] == [CORRECT] and opened == {verified[0].session}
    assert len(failed) == 2 and "WRONG, relative L2 error" in failed[0] and failed[1].endswith(": fault")
    assert len(capsys.readouterr().out.splitlines()) == 3  # the unsupported one too
    measure.close(verified)
    assert not opened


def test_verification_closes_every_session_before_the_next(opened, problem):
    for result in measure.checked((CORRECT, WRONG, UNSUPPORTED, BROKEN), problem):
        assert len(opened) == isinstance(result, Verified)
        if isinstance(result, Verified):
            result.session.close()


def test_unsupported_candidate_counts_as_neither(opened, problem):
    correct, failed = measure.verify([((CORRECT, WRONG), problem), ((UNSUPPORTED, BROKEN), problem)])
    assert correct == 1 and len(failed) == 2 and not opened


def test_broken_rule_is_a_failure(opened, problem):
    rung, tiles = CORRECT
    strict = replace(rung, rules=lambda shape, tiles: ["rows are too short"])
    (result,) = measure.checked([(strict, tiles)], problem)
    assert isinstance(result, Failure) and str(result).endswith(": rows are too short")
    assert not opened


def test_candidates_come_once_with_default_tile_sizes_first(monkeypatch):
    monkeypatch.setattr(availability, "missing_library", lambda rung, shape: "")
    rung, default = CORRECT
    sets = {rung.name: [{"BLOCK": 128}, {"BLOCK": default["BLOCK"]}]}
    assert list(measure.candidates([rung], SHAPE, sets)) == [(rung, default), (rung, default | {"BLOCK": 128})]


def test_figures_are_quantiles_of_the_samples():
    figures = measure.figures(Timed(tuple(map(float, range(1, 12))), ()))
    assert figures == {"n": 11, "median_ms": 6.0, "p20_ms": 3.0, "p80_ms": 9.0}
