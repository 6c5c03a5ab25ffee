"""What a page says of a training step: figures of its plan, times only where there are some, two counts of FLOPs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.training.memory import ROLES
from kernels.training.step import Memory
from tests.helpers.offenders import every
from visuals.strip import curve
from visuals.training import flops, recorded, strip, timeline
from visuals.training.evidence import Measured, StepEvidence, facts
from visuals.training.plan import FAINT, HUES

PLAIN = StepEvidence("lenet5", 32, "sgd")
NODES = [node.name for node in PLAIN.plan.graph.nodes]
TIMED = StepEvidence("lenet5", 32, "sgd", Measured(dict.fromkeys(NODES, 0.5), 20.0, "a processor"))
ROW = {
    "network": "lenet5",
    "batch": 32,
    "optimizer": "sgd",
    "memory": {"every": 0, "parts": 1},
    "device": "NVIDIA H200",
    "date": "2026-11-25",
    "node_us": dict.fromkeys(NODES, 2.0),
    "one_by_one_us": 200.0,
    "graph_us": 80.0,
    "eager_us": 400.0,
    "curve": {"loss": [[1, 2.3], [46, 0.2]], "accuracy": [[0, 0.1], [46, 0.9]], "steps_per_epoch": 46},
}


@pytest.fixture
def with_record(monkeypatch):
    monkeypatch.setattr(recorded, "rows", lambda: (ROW,))
    return StepEvidence("lenet5", 32, "sgd")


def test_without_times_nothing_is_said_of_them(monkeypatch):
    monkeypatch.setattr(recorded, "rows", lambda: ())
    found = StepEvidence("lenet5", 32, "sgd")
    assert found.kind == "" and found.step_ms is None and found.by_phase() == {} and found.badge is None
    f = facts(found)
    assert f["graph"] == f["one_by_one"] == f["gain"] == f["backward_share"] == ""
    time = strip.time(found)
    assert time["value"] == "–" and time["bars"] == [] and "Not recorded yet" in time["text"]
    assert [row["share"] for row in strip.phases(found)["rows"]] == [None] * 3


def test_measured_times_go_before_recorded_ones(with_record):
    assert with_record.kind == "recorded" and with_record.step_ms == 0.08
    assert TIMED.kind == "measured" and TIMED.step_ms == 20.0
    assert sum(TIMED.by_phase().values()) == pytest.approx(1)
    assert TIMED.by_phase()["backward"] > TIMED.by_phase()["forward"]
    families = TIMED.by_family()
    assert sum(families.values()) == pytest.approx(1) and list(families.values()) == sorted(
        families.values(), reverse=True
    )


def test_shares_are_of_the_time_of_the_kernels():
    times = dict.fromkeys(NODES, 0.0) | {NODES[0]: 3.0, NODES[-1]: 1.0}
    found = replace(TIMED, measured=replace(TIMED.measured, node_ms=times))
    assert found.by_phase() == {"forward": 0.75, "backward": 0, "update": 0.25}
    assert list(found.by_family().values())[:2] == [0.75, 0.25]


def test_a_record_says_what_one_graph_gains(with_record):
    f = facts(with_record)
    assert (f["graph"], f["one_by_one"], f["eager"], f["gain"]) == ("80 µs", "200 µs", "400 µs", "2.5")
    assert "60 %" in strip.phases(with_record)["text"]  # of the launches one by one
    here = replace(with_record, measured=TIMED.measured)  # a processor launches nothing
    assert "60 %" not in strip.phases(here)["text"]
    for found in (with_record, here):
        assert sum(row["share"] for row in strip.phases(found)["rows"]) == pytest.approx(1)
    assert [bar["title"] for bar in strip.time(with_record)["bars"]] == [
        "launches one by one",
        "one CUDA graph",
        "PyTorch eager",
    ]


def test_a_record_of_another_step_is_not_used(with_record):
    for other in (
        StepEvidence("lenet5", 64, "sgd"),
        StepEvidence("lenet5", 32, "adam"),
        StepEvidence("lenet5", 32, "sgd", None, Memory(every=2)),
    ):
        assert other.record is None


def test_recorded_curves_lie_beside_the_live_one(with_record):
    part = strip.curve_part(with_record, strip.Curve([(1, 2.0), (2, 1.0)], [(0, 0.1)], 2, 1))
    names = [(line["role"], line.get("faint", False)) for line in part["lines"]]
    assert names == [("write", False), ("output", False), ("write", True), ("output", True)]
    assert all(0 <= v <= 1 for line in part["lines"] for point in line["points"] for v in point)


def test_a_curve_ends_with_the_epochs_that_are_shown():
    found = curve.shares([(1, 2.3), (46, 0.2), (47, 0.1), (92, float("nan"))], 46, 2.5)
    assert found == [[round(1 / 46, 4), 0.92], [1.0, 0.08]]


def test_computing_layers_again_saves_at_the_peak_of_one_network_only():
    assert facts(StepEvidence("residual", 128, "sgd"))["saved"] == "1.57 MB"
    assert facts(StepEvidence("lenet5", 128, "sgd"))["saved"] == ""


# -- measured memory -----------------------------------------------------------------------------------
HELD = {name: (10, 0, 20, 300 + n, 0, 5) for n, name in enumerate(NODES)}


def test_measured_memory_lies_beside_the_predicted_one_at_one_scale():
    found = replace(TIMED, measured=replace(TIMED.measured, held=HELD))
    assert timeline.peak(found) == (sum(HELD[NODES[-1]]), NODES[-1])
    sizes = timeline.measured(found)
    assert sizes.shape == found.plan.memory.shape
    assert [tuple(row) for row in sizes] == [HELD[found.plan.node(n).name] for n in range(len(found.plan.parts))]
    roles = {name: (predicted, measured) for name, predicted, measured in timeline.rows(found)}
    assert roles["images"] == ("132 KB", "20 B") and roles["gradients"][1] == "0 B"
    text = timeline.html(found, "measured here")
    assert text.count("<figure") == 2 and f"measured here: at most {sum(HELD[NODES[-1]])} B" in text
    assert "predicted, kernels of a GPU: at most 2.87 MB" in text


def test_without_a_measurement_there_is_no_second_timeline():
    assert TIMED.held == {} and timeline.html(TIMED, "measured here") == ""


def test_recorded_memory_is_used_without_one_measured_here(monkeypatch):
    monkeypatch.setattr(recorded, "rows", lambda: (ROW | {"held": {n: list(s) for n, s in HELD.items()}},))
    assert StepEvidence("lenet5", 32, "sgd").held == HELD


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 10**9), min_size=6, max_size=6), min_size=1, max_size=50))
def test_a_column_is_as_high_as_its_bytes(sizes):
    sizes = np.array(sizes, np.int64)
    most = max(1, int(sizes.sum(axis=1).max()))
    for row in sizes:
        shares = [float(v) for v in re.findall(r"height:([\d.]+)%", "".join(timeline._column(row, most)))]
        assert len(shares) == np.count_nonzero(row)
        assert sum(shares) == pytest.approx(100 * row.sum() / most, abs=0.04)


@every("role", ROLES)
def test_a_part_of_a_column_has_the_colour_of_its_role(role):
    (part,) = timeline._column(np.array([100 * (each == role) for each in ROLES]), 100)
    assert f'class="kt-{HUES[role]}' in part and ("kt-faint" in part) == (role in FAINT)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=900))
def test_a_thinned_curve_keeps_its_ends(losses):
    points = list(enumerate(losses, start=1))
    found = curve.thinned(points)
    assert found[0] == points[0] and found[-1] == points[-1]
    assert len(found) <= curve.MAX_POINTS + 1 and found == sorted(found)


def test_a_loss_is_written_without_a_power_of_ten():
    assert [curve.loss_text(v) for v in (2.3026, 0.0123, 5e-5, 0.0)] == ["2.3", "0.0123", "< 0.001", "0"]


def test_the_first_convolution_is_counted_in_two_ways():
    rows = {name: (int(macs.replace(",", "")), int(ours.replace(",", ""))) for name, _, macs, ours in flops.rows(PLAIN)}
    assert rows["ResNet-50, one image"] == (64 * 3 * 7 * 7 * 112 * 112, 2 * 118_013_952)
    assert rows["LeNet-5, one image"] == (6 * 25 * 28 * 28, 235_200)
    assert rows["LeNet-5, 32 images"] == (32 * 117_600, 64 * 117_600)
    assert all(ours == 2 * macs for macs, ours in rows.values())
    assert round(rows["ResNet-50, one image"][0] / 1e8, 1) == 1.2
    assert "118,013,952" in flops.explained() and "236 M" in flops.explained()
