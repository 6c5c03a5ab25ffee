"""The scenes of CPU and GPU: the length of every box is its time, and the result follows from the times."""

from __future__ import annotations

from collections import defaultdict

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.offload import gpu, machines, recorded
from kernels.offload.works import COPIES, NONE, PAGEABLE, PINNED, WORKS, points
from tests.visuals.offload.test_evidence import run_here
from visuals.offload import charts, strip
from visuals.offload.evidence import OffloadEvidence
from visuals.offload.scene import CPU, GPU, machine_scene, moments, program_scene, work_scene
from visuals.strip.strip import Run

TOKENS = defaultdict(lambda: "#123456")


@st.composite
def evidences(draw):
    key = draw(st.sampled_from(sorted(WORKS)))
    copies = draw(st.sampled_from(COPIES))
    size = draw(st.sampled_from(sorted(OffloadEvidence(key, 1).gpu_by_size(copies))))
    measured = draw(st.sampled_from([None, run_here(key, 0.3), run_here(key, 7.0, with_gpu=True)]))
    return OffloadEvidence(key, size, copies, draw(st.integers(0, 95)) / 100, measured)


@settings(max_examples=20)
@given(evidences())
def test_boxes_are_as_long_as_the_times(found):
    scene, spans = work_scene(found), moments(found)
    total = spans[-1].end
    assert total == pytest.approx(max(found.cpu.ms, found.gpu.ms)) and scene.steps == len(spans) + 1
    boxes = defaultdict(list)
    for box in scene.diagram.boxes:
        boxes[box.row].append(box)
    shown = [found.cpu.ms, *(found.gpu.parts[name] for name in gpu.PARTS)]
    for row, ms in enumerate(shown):
        width = sum(box.right - box.left for box in boxes[row]) * total
        assert width == pytest.approx(ms, abs=2e-3 * total)  # a short box has a width that can be seen
        assert all(box.tensor == (GPU if row else CPU) for box in boxes[row])
    assert max(box.right for box in boxes[0]) * total == pytest.approx(found.cpu.ms, rel=1e-3)


@settings(max_examples=20)
@given(evidences())
def test_the_last_caption_names_the_faster_side_and_the_line_is_that_of_the_part(found):
    scene = work_scene(found)
    last = scene.caption(scene.steps - 1)
    assert ("times as fast as the processor" in last) == (found.cpu.ms >= found.gpu.ms)
    for step, moment in enumerate(moments(found)):
        source, line = scene.source_at(step)
        text = source.text.splitlines()[line - source.first] if line else ""
        words = {"in": "_copy_in", "call": "backend.launch", "kernel": "self.wait()", "out": "copy_out", "": ""}
        assert words[moment.part] in text and bool(line) == bool(moment.part)


@settings(max_examples=20)
@given(evidences())
def test_a_program_is_drawn_from_the_same_times(found):
    scene = program_scene(found)
    rest = found.cpu.ms * found.left / (1 - found.left)
    whole = rest + max(found.cpu.ms, found.gpu.ms)
    ends = [max((box.right for box in scene.diagram.boxes if box.row == row), default=0) for row in range(3)]
    expected = [(rest + ms) / whole for ms in (found.cpu.ms, found.gpu.ms, 0)]
    assert ends == pytest.approx(expected, abs=2e-4)
    assert scene.steps == 3 and ("Nothing is left" in scene.caption(2)) == (rest == 0)


@settings(max_examples=20)
@given(evidences(), st.booleans())
def test_the_strip_has_the_times_of_the_stage(found, program):
    data = strip.strip(found, Run(), program)["sizes"][0]
    bars = data["time"]["bars"]
    assert [bar["current"] for bar in bars].count(True) == 1
    for bar in bars:
        if bar["share"] is not None:
            assert 0 < bar["low"] <= bar["share"] <= bar["high"] <= 1 + 1e-9
    assert sum(row["share"] for row in data["limits"]["rows"]) == pytest.approx(1)
    assert ("of other work" in data["time"]["text"]) == program


@settings(max_examples=10)
@given(evidences())
def test_the_charts_hold_every_measured_time(found):
    figure = go.Figure(charts.times(found, TOKENS).to_dict())
    assert list(figure.data[0].y) == [one.ms for one in found.cpu_by_size.values()]
    spread, cpu = figure.data[0].error_y, found.cpu_by_size.values()
    assert list(spread.array) == [one.p80_ms - one.ms for one in cpu]
    assert list(spread.arrayminus) == [one.ms - one.p20_ms for one in cpu]
    for trace, copies in zip(figure.data[1:], COPIES, strict=True):
        assert dict(zip(trace.x, trace.y, strict=True)) == {
            size: one.ms for size, one in found.gpu_by_size(copies).items()
        }
    *lines, point = go.Figure(charts.amdahl(found, TOKENS).to_dict()).data
    assert (point.x[0], point.y[0]) == (found.gain, found.speedup)
    assert all(
        max(line.y) <= 1 / (left or 1e-9) + 1e-9
        for line, left in zip(lines, sorted({*charts.LEFT, found.left}), strict=True)
    )


def test_the_sentences_of_the_chart_follow_the_crossing():
    def said(key, copies):
        return charts.times_text(OffloadEvidence(key, 1, copies))

    assert "faster than the processor from n = " in said("gemm", NONE)
    assert "at every measured size, from 648 multiply-adds on" in said("conv", NONE)
    assert "slower than the processor up to the largest size" in said("add", PAGEABLE)
    source = charts.times_source(OffloadEvidence("gemm", 1, PINNED))
    assert recorded.newest()["date"] in source and "16 cores" in source and "p20 to p80" in source


def test_a_size_that_the_processor_lacks_shows_the_gpu_alone():
    measured = run_here("gemm", 2.0)
    measured["works"]["cpu"] = measured["works"]["cpu"][:3]
    found = OffloadEvidence("gemm", points("gemm")[-1].size, PINNED, measured=measured)
    scene = work_scene(found)
    assert found.cpu is None and "was not measured at this size" in scene.caption(scene.steps - 1)
    assert not [box for box in scene.diagram.boxes if box.tensor == CPU]
    assert strip.time(found)["text"] == "The processor was not measured at this size."


def test_the_machine_has_a_box_for_each_core_and_each_sm(monkeypatch):
    found = machines.recorded_machine()
    scene = machine_scene(found)
    count = {name: sum(box.tensor == name for box in scene.diagram.boxes) for name in (CPU, GPU)}
    assert count == {CPU: found.cores, GPU: found.sms} == {CPU: 16, GPU: 132}
    assert "up to 256 numbers" in scene.caption(2) and "16,896" in scene.caption(2)
    widths = {round(box.right - box.left, 9) for box in scene.diagram.boxes}
    assert len(widths) == 1
    monkeypatch.setattr(recorded, "records", lambda: ({"device": "a processor", "gpu": "a GPU", "date": ""},))
    assert machines.recorded_machine() is None
