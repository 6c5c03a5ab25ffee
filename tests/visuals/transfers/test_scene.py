"""The scenes of moving data: every operation is a step, in the order of its program, at its recorded or predicted time."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.transfers import model, recorded
from kernels.transfers.operations import HOST, QUEUES
from kernels.transfers.rates import WAYS, rates
from kernels.transfers.scenarios import MAX_N, MAX_ROWS, PIECES, SCENARIOS, Settings
from tests.helpers.offenders import every
from visuals import units
from visuals.scene.gantt import ticks
from visuals.transfers import charts, evidence, strip
from visuals.transfers.evidence import ROWS, TransferEvidence
from visuals.transfers.scene import transfer_scene


@st.composite
def sizes(draw):
    row = SCENARIOS[draw(st.sampled_from(sorted(SCENARIOS)))]
    rows = draw(st.integers(1, MAX_ROWS))
    most = min(rows, 16) if row.n == PIECES else 16
    return Settings(row.key, rows, draw(st.integers(1, min(most, MAX_N))) if row.n else 1)


@settings(max_examples=20)
@given(sizes())
def test_each_operation_is_a_step_at_its_line(s):
    found = TransferEvidence(s)
    scene = transfer_scene(found)
    assert scene.steps == len(found.ops)
    assert list(scene.source.lines) == [op.line for op in found.ops]
    boxes = scene.diagram.boxes
    assert {box.index for box in boxes} == {span.op for span in found.timeline.spans}
    assert all(0 <= box.left < box.right <= 1 and box.first == box.index for box in boxes)
    for span in found.timeline.spans:  # a box stands in the row of its queue
        rows = {box.row for box in boxes if box.index == span.op}
        assert QUEUES.index(span.queue) in rows


@settings(max_examples=20)
@given(sizes())
def test_boxes_of_one_queue_of_the_gpu_do_not_overlap(s):
    found = TransferEvidence(s)
    for queue in QUEUES:
        spans = sorted((x.start, x.end) for x in found.timeline.spans if x.queue == queue and queue != HOST)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))


def test_every_recorded_scenario_is_shown_as_recorded():
    for key, row in recorded.newest()["scenarios"].items():
        found = TransferEvidence(Settings(key, **row["settings"]))
        assert found.kind == "recorded" and found.total_ms == row["total_ms"]
        assert row["ops"] == len(found.ops) and row["error"] < 1e-5
        assert strip.badge(found)["text"].startswith("recorded · H200")


@every("n", [p["n"] for p in recorded.curve() if p["n"] <= 32])
def test_a_number_of_pieces_has_one_recorded_total(n):
    found = evidence.of("pieces", n=n)
    assert found.kind == "recorded" and found.total_ms == recorded.pieces_ms(ROWS)[n]
    current = next(bar for bar in strip.time(found)["bars"] if bar["current"])
    assert current["text"] == strip.time(found)["value"] == evidence.facts(found)["total"]
    assert ("predicted" in strip.time(found)["text"]) == (found.found is None)  # the boxes are


@every("key", recorded.newest()["scenarios"])
def test_the_busiest_queue_is_compared_with_the_run_that_it_is_of(key):
    found = TransferEvidence(Settings(key, **recorded.newest()["scenarios"][key]["settings"]))
    timed, longest = found.timeline.total_ms, found.timeline.longest
    f = evidence.facts(found)
    if longest:
        assert float(f["over_longest"]) == pytest.approx(timed / longest, rel=0.005)
        assert f["timed"] in strip.time(found)["text"] and f["timed"] == units.time_(timed)


@pytest.mark.parametrize("key", ["pinned", "pageable"])
def test_the_rate_of_a_copy_is_its_bytes_over_its_time_as_shown(key):
    f = evidence.facts(evidence.of(key))
    (mb, _), (ms, _), (rate, unit) = (f[name].split() for name in ("bytes", "in", "rate_in"))
    assert unit == "GB/s" and float(rate) == float(f"{float(mb) / float(ms):.2g}")


def test_one_piece_can_be_the_best():
    rows = next(rows for rows in (1, 64, 512) if model.best_pieces(rows, charts.MOST)[0] == 1)
    assert charts.best_text(rows).startswith("One piece is the best: ")
    assert charts.best_text(ROWS).startswith("4 pieces are the best: 2.5 ms, against 4.24 ms")


def test_another_size_is_predicted_and_says_so():
    found = evidence.of("pieces", ROWS, 5)
    assert found.kind == "predicted"
    assert strip.time(found)["text"].startswith("Not recorded yet.")


def test_the_strip_compares_what_belongs_together():
    titles = [bar["title"] for bar in strip.time(evidence.of("pinned"))["bars"]]
    assert len(titles) == len(set(titles)) >= 3
    bars = strip.time(evidence.of("graph"))["bars"]
    assert [bar["current"] for bar in bars].count(True) == 1 and max(bar["share"] for bar in bars) == 1


@every("whole", [0.003, 0.09, 1.0, 7.3, 24.5, 9_999.0])
def test_ticks_are_round_and_inside(whole):
    found = ticks(whole)
    shares = np.array([share for _, share in found])
    assert 2 <= len(found) <= 8 and shares[0] == 0 and shares[-1] <= 1
    assert np.allclose(np.diff(shares), shares[1])
    assert [text for text, _ in found[1:]] == [units.time_(share * whole) for share in shares[1:]]


def test_pinned_memory_gains_on_pageable_memory():
    pinned, pageable = (evidence.of(key) for key in ("pinned", "pageable"))
    assert evidence.rival(pinned).settings.scenario == "pageable"
    assert float(evidence.facts(pinned)["gain"]) == pytest.approx(pageable.total_ms / pinned.total_ms, rel=0.005)
    assert float(evidence.facts(pinned)["gain"]) > 1


def test_large_copies_reach_the_bandwidth_that_the_chart_shows():
    lines = charts.copies(defaultdict(str)).to_dict()["data"]
    assert len(lines) == len(WAYS)
    assert max(lines[WAYS.index("h2d_pinned")]["y"]) == pytest.approx(
        rates().copies["h2d_pinned"].bytes_per_s / 1e9, rel=0.2
    )
