"""The pictures of a parallel step: boxes as long as their tasks, the memory of each moment, who holds what."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.collectives.shape import ALL_REDUCE
from kernels.parallel import data
from kernels.parallel import timeline as timelines
from kernels.parallel.memory import HELD
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, PIPELINES, TENSOR, WAYS, ZERO_3, Plan
from kernels.parallel.timeline import LINK
from kernels.training.graph import ACTIVATION, STATE, WEIGHT
from visuals import units
from visuals.parallel import recorded
from visuals.parallel.evidence import CURVE_GPUS, ParallelEvidence, facts, weight_gradients_us
from visuals.parallel.scene import NAMED, NARROWEST, TASKS, Layout, fullest_memory, step_scene
from visuals.parallel.shares import REST, shares_scene
from visuals.parallel.strip import strip
from visuals.scene.payload import payload

OTHER = {"device": "NVIDIA H200", "date": "2026-11-25"}
PLANS = st.sampled_from(
    [
        Plan("transformer", way, gpus, 24 * gpus, 4, 20_000, optimizer)
        for way in WAYS
        for gpus in (1, 2, 4)
        for optimizer in ("sgd", "adam")
    ]
    + [Plan("residual", DATA, 3, 96), Plan("lenet5", GPIPE, 5, 80, 8), Plan("lenet5", TENSOR, 8, 64)]
)


def boxes(scene, tensor: str):
    return [box for box in scene.diagram.boxes if box.tensor == tensor]


@settings(max_examples=6, deadline=None)
@given(PLANS)
def test_a_box_is_where_its_task_is_and_as_long(plan):
    scene, layout = step_scene(plan), Layout(ParallelEvidence(plan))
    line, found = layout.line, boxes(scene, TASKS)
    assert len(found) == sum(len(task.streams) for task in line.tasks) == scene.tensor(TASKS).size
    for box, part in zip(found, layout.parts, strict=True):
        start, end = line.starts[part.task] / line.total, line.ends[part.task] / line.total
        left, right = ((share - NAMED) / (1 - NAMED) for share in (box.left, box.right))
        assert left == pytest.approx(start, abs=NARROWEST) and right == pytest.approx(end, abs=2 * NARROWEST)
        assert box.row == 2 * part.gpu + (part.stream == LINK)
        assert layout.moments[box.first] == pytest.approx(line.starts[part.task], abs=1e-5)
        assert box.last == scene.steps - 1
    us = np.array([line.tasks[part.task].us for part in layout.parts], np.float32)
    np.testing.assert_array_equal(scene.cells(TASKS), us)


@settings(max_examples=5, deadline=None)
@given(PLANS)
def test_the_chart_is_the_memory_of_the_fullest_gpu(plan):
    evidence = ParallelEvidence(plan)
    memory = fullest_memory(Layout(evidence))
    holding = evidence.holdings[evidence.fullest]
    assert memory.sum(axis=1).max() == holding.peak.total
    scene = step_scene(plan)
    np.testing.assert_allclose(sum(area.values for area in scene.diagram.areas), memory.sum(axis=1))


def test_captions_say_what_starts_and_how_much_moves():
    plan = Plan("lenet5", DATA, 2, 512, bucket_bytes=20_000)
    scene, count = step_scene(plan), len(data.buckets(data.replica(plan), 20_000))
    said = [scene.caption(n) for n in range(scene.steps)]
    assert said[0] == "0 µs: Both GPUs: conv1, forward."
    assert said[-1].endswith("Both GPUs update their weights.")
    assert sum("all-reduce of bucket" in text for text in said) == count
    assert scene.diagram.phases[0] == ("forward", 0)


def test_a_pipeline_s_captions_name_micro_batches_and_messages():
    said = " ".join(step_scene(Plan("transformer", ONE_F_ONE_B, 2, 64, 4)).captions.templates)
    for text in (
        "GPU 1: micro-batch 1 [forward](input).",
        "GPU 2: micro-batch 4 [backward](output).",
        "of micro-batch 3 to GPU 2.",
    ):
        assert text in said
    assert not step_scene(Plan("transformer", GPIPE, 2, 64, 4)).diagram.phases


def test_the_kernel_beside_the_picture_is_one_of_the_task():
    scene = step_scene(Plan("lenet5", DATA, 2, 512))
    first, _ = scene.source_at(0)
    last, line = scene.source_at(scene.steps - 1)
    assert "conv" in first.file or "gemm" in first.file
    assert "sgd" in last.text and last.text.splitlines()[0] and line == last.first


def test_a_scene_is_small_enough_to_send():
    meta, _ = payload(step_scene(Plan("transformer", ZERO_3, 8, 256, bucket_bytes=5_000)))
    assert len(json.dumps(meta)) < 400_000


# -- who holds what ------------------------------------------------------------------------------------
@settings(max_examples=6, deadline=None)
@given(PLANS)
def test_a_filled_part_is_the_share_that_a_gpu_holds(plan):
    scene, evidence = shares_scene(plan), ParallelEvidence(plan)
    for role in HELD:
        held = [holding.largest(role) for holding in evidence.holdings]
        assert scene.cells(role).tolist() == held
        found = boxes(scene, role)
        widest = max(box.right - box.left for box in found)
        if plan.way == DATA and role in (WEIGHT, STATE):
            assert all(box.right - box.left == pytest.approx(widest) for box in found)
    rest = boxes(scene, REST)
    assert rest or plan.gpus == 1
    for box in rest:
        assert box.first == scene.steps  # the legend: what is on other GPUs is filled at no step
        same = [b for b in scene.diagram.boxes if b.row == box.row and b is not box]
        assert all(b.right <= box.left + 1e-9 or b.left >= box.right - 1e-9 for b in same)


def test_shards_of_four_gpus_lie_side_by_side():
    found = boxes(shares_scene(Plan("transformer", ZERO_3, 4, 32, 1, 10_000, "adam")), STATE)
    lefts = [box.left for box in found]
    assert lefts == sorted(lefts) and len(set(lefts)) == 4
    shares = [box.right - box.left for box in found]
    assert max(shares) == pytest.approx(min(shares), rel=0.02)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_says_who_holds_each_role(way):
    scene = shares_scene(Plan("transformer", way, 2, 32, 2, optimizer="adam"))
    said = [scene.caption(n) for n in range(scene.steps)]
    for word, text in zip(("weights", "gradient", "optimiser state", "ctivations", "One GPU alone"), said, strict=True):
        assert word in text and "B" in text


# -- the figures ---------------------------------------------------------------------------------------
@settings(max_examples=5, deadline=None)
@given(PLANS)
def test_the_strip_has_the_figures_of_the_timeline(plan):
    evidence = ParallelEvidence(plan)
    (size,) = strip(evidence)["sizes"]
    shares = [row["share"] for row in size["limits"]["rows"]]
    assert sum(shares) == pytest.approx(1.0)
    assert sum(bar["current"] for bar in size["time"]["bars"]) == (plan.gpus in (1, 2, 4, 8))
    assert sum(part["share"] for part in size["memory"]["parts"]) == pytest.approx(1.0)
    for line in size["curve"]["lines"]:
        assert len(line["points"]) == len(CURVE_GPUS) and line["points"][0] == [0, 1]
        assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in line["points"])
    found = facts(evidence)
    assert bool(found["formula"]) == (plan.way in PIPELINES)
    assert bool(found["exchanges"]) == (plan.way == TENSOR)


def test_parts_of_a_layer_make_the_gradient_of_its_weight_no_faster():
    found = ParallelEvidence(Plan("transformer", TENSOR, 4, 4096))
    f, line = facts(found), found.timeline
    assert f["dw"] == f["one_dw"] == units.time_(weight_gradients_us(found.on_one) / 1e3)
    assert weight_gradients_us(found) / line.total > 0.7 > 0.07 > line.busy(0, LINK) / line.total
    assert line.total - line.busy(0, LINK) == pytest.approx(line.busy(0))  # an exchange stops the GPU


def test_the_two_efficiencies_are_named():
    found = ParallelEvidence(Plan("transformer", DATA, 8, 8192))
    (size,) = strip(found)["sizes"]
    assert facts(found)["efficiency"] + " (strong scaling)" in size["time"]["text"]
    assert facts(found)["node_efficiency"] != facts(found)["efficiency"]
    assert "(weak scaling)" in size["curve"]["text"]


def test_what_is_not_recorded_says_so(monkeypatch):
    monkeypatch.setattr(recorded, "all_rows", lambda: ())
    (size,) = strip(ParallelEvidence(Plan("lenet5", DATA, 4, 8192)))["sizes"]
    assert size["time"]["badge"]["kind"] == "predicted" and "not recorded yet" in size["time"]["text"]


def test_a_recorded_step_replaces_the_predicted_time(monkeypatch):
    plan = Plan("lenet5", DATA, 2, 512)
    row = {
        "network": "lenet5",
        "way": DATA,
        "gpus": 2,
        "batch": 512,
        "optimizer": "sgd",
        "overlap": True,
        "bucket_bytes": plan.bucket_bytes,
        "step_us": 321.0,
        "device": "NVIDIA H200",
        "date": "2026-11-25",
    }
    monkeypatch.setattr(
        recorded, "all_rows", lambda: (row, row | {"overlap": False, "step_us": 9.0}, OTHER | {"error": "x"})
    )
    (size,) = strip(ParallelEvidence(plan))["sizes"]
    assert size["time"]["value"] == "321 µs" and size["time"]["badge"]["kind"] == "recorded"
    assert recorded.recorded(plan, overlap=False)["step_us"] == 9.0
    assert "redicted efficiency" in size["time"]["text"]
    both = (row, row | {"gpus": 1, "step_us": 577.8})
    monkeypatch.setattr(recorded, "all_rows", lambda: both)
    (size,) = strip(ParallelEvidence(plan))["sizes"]
    assert size["time"]["text"].startswith("Recorded efficiency 90 %")  # 577.8 / (2 * 321)
    texts = {bar["title"]: bar["text"] for bar in size["time"]["bars"]}
    assert texts["1 GPU"] == "578 µs" and texts["4 GPUs"].endswith(", predicted")
    (size,) = strip(ParallelEvidence(Plan("lenet5", DATA, 4, 512)))["sizes"]
    texts = {bar["title"]: bar["text"] for bar in size["time"]["bars"]}
    assert texts["1 GPU"] == "578 µs, recorded" and "," not in texts["4 GPUs"]
    (size,) = strip(ParallelEvidence(plan))["sizes"]
    hints = {bar["title"]: bar["hint"] for bar in size["time"]["bars"]}
    assert hints == {
        "1 GPU": "recorded · H200",
        "2 GPUs": "recorded · H200",
        "4 GPUs": "predicted",
        "8 GPUs": "predicted",
    }


def test_the_step_on_one_gpu_is_of_the_same_kind_of_gpu(monkeypatch):
    plan = Plan("lenet5", TENSOR, 2, 512)
    row = {
        "network": "lenet5",
        "way": TENSOR,
        "gpus": 2,
        "batch": 512,
        "optimizer": "sgd",
        "overlap": True,
        "bucket_bytes": plan.bucket_bytes,
        "step_us": 600.0,
        "device": "NVIDIA H100",
        "date": "2026-11-25",
    }
    one = row | {"way": DATA, "gpus": 1, "step_us": 600.0}
    monkeypatch.setattr(recorded, "all_rows", lambda: (row, one, one | {"device": "NVIDIA H200", "step_us": 300.0}))
    (size,) = strip(ParallelEvidence(plan))["sizes"]
    assert size["time"]["badge"]["text"] == "recorded · H100"
    assert size["time"]["text"].startswith("Recorded efficiency 50 %")
    assert recorded.recorded(timelines.one_gpu(plan))["step_us"] == 300.0  # the prediction's kind of GPU comes first


def test_a_step_measured_here_comes_before_a_recorded_one():
    plan = Plan("transformer", TENSOR, 2, 4096)
    row = {"step_us": 2000.0, "device": "NVIDIA X"}
    here = {plan: row, timelines.one_gpu(plan): row | {"step_us": 3000.0}}
    (size,) = strip(ParallelEvidence(plan, here))["sizes"]
    assert size["time"]["badge"] == {"kind": "measured", "text": "measured here · X"}
    assert size["time"]["text"].startswith("Measured efficiency 75 %")  # 3000 / (2 * 2000)
    hints = {bar["title"]: bar["hint"] for bar in size["time"]["bars"]}
    assert hints["1 GPU"] == hints["2 GPUs"] == "measured here · X"
    assert ParallelEvidence(plan).kind != "measured"


def test_recorded_rows_of_two_machines_are_never_mixed(monkeypatch):
    rows = [{"device": d, "date": date, "n": n} for n, (d, date) in enumerate([("B", "2"), ("B", "2"), ("A", "1")])]
    monkeypatch.setattr(recorded, "all_rows", lambda: tuple(rows))
    assert [row["n"] for row in recorded.rows()] == [0, 1]
    assert [row["n"] for row in recorded.rows("A")] == [2] and recorded.devices() == ["B", "A"]
    monkeypatch.setattr(recorded, "all_rows", lambda: ())
    assert recorded.rows() == ()


def test_activations_are_split_and_an_all_reduce_moves_all_gradients():
    evidence = ParallelEvidence(Plan("transformer", DATA, 4, 256))
    assert evidence.held(ACTIVATION) < evidence.alone.largest(ACTIVATION) / 3
    moved = sum(task.nbytes for task in evidence.timeline.tasks if task.kind == ALL_REDUCE)
    assert moved == pytest.approx(evidence.held(WEIGHT), rel=0.02)


def test_four_gpus_speed_up_a_step_of_many_images():
    found = facts(ParallelEvidence(Plan("transformer", DATA, 4, 4096)))
    assert 1 < float(found["speedup"]) <= 4
