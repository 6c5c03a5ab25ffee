"""The scene of a training step: each launch and each tensor is in it, and what exists on the stage is what memory holds."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.ladders import ladder_of
from kernels.model.program import RuleError
from kernels.training import graph as graphs
from kernels.training.graph import ACTIVATION, GRADIENT
from kernels.training.memory import ROLES, timeline
from kernels.training.networks import NETWORKS
from kernels.training.step import Memory
from visuals.scene.diagram import Box, Line
from visuals.scene.parts import SceneError
from visuals.scene.payload import payload
from visuals.training.evidence import StepEvidence
from visuals.training.plan import plan
from visuals.training.scene import KERNELS, LAYERS, TENSORS, function_text, step_scene

steps = st.tuples(
    st.sampled_from(list(NETWORKS)),
    st.sampled_from([4, 32, 48]),
    st.sampled_from(["sgd", "adam"]),
    st.builds(Memory, st.sampled_from([0, 2, 3]), st.sampled_from([1, 2, 4])),
)


def boxes(scene, tensor: str) -> list[Box]:
    return [box for box in scene.diagram.boxes if box.tensor == tensor]


@settings(max_examples=8, deadline=None)
@given(steps)
def test_what_exists_on_the_stage_is_what_memory_holds(case):
    network, batch, optimizer, memory = case
    scene, p = step_scene(network, batch, optimizer, None, memory), plan(*case)
    kinds = {t.name: t.kind for t in p.graph.tensors.values()}
    shown = [t for t in p.graph.tensors.values() if t.kind in ("data", ACTIVATION, GRADIENT)]
    shown = [t for t in shown if t.name != "chunks" and not t.name.startswith("gradients")]
    assert scene.tensor(TENSORS).size == len(shown)
    for kind in (ACTIVATION, GRADIENT):
        alive = np.zeros(scene.steps)
        for box in boxes(scene, TENSORS):
            t = shown[box.index]
            if kinds[t.name] == kind:
                alive[box.first : box.last + 1] += t.nbytes
        held = p.memory[:, ROLES.index(kind)]
        if kind == ACTIVATION:
            np.testing.assert_array_equal(alive, held)
        else:  # the buffers of all weights' gradients are boxes of their own
            assert (alive <= held).all() and alive.any()


@settings(max_examples=8, deadline=None)
@given(steps)
def test_every_node_has_one_box_that_is_lit_while_its_launches_run(case):
    network, batch, optimizer, memory = case
    scene, p = step_scene(network, batch, optimizer, None, memory), plan(*case)
    found = {box.index: box for box in boxes(scene, KERNELS)}
    assert sorted(found) == list(range(len(p.graph.nodes)))
    for n, part in enumerate(p.parts):
        assert found[part.node].first <= n <= found[part.node].last
    assert sum(box.last - box.first + 1 for box in found.values()) == scene.steps
    places = sorted((b.column, b.row, b.left, b.right) for b in scene.diagram.boxes)
    for before, after in pairwise(places):  # no box covers another
        assert before[:2] != after[:2] or before[3] <= after[2] + 1e-9


@pytest.mark.parametrize("network", NETWORKS)
def test_the_areas_are_the_memory_of_the_step(network):
    scene, graph = step_scene(network, 32, "sgd"), plan(network, 32, "sgd").graph
    moments = timeline(graph)
    total = sum(area.values for area in scene.diagram.areas)
    assert total.tolist() == [moment.total for moment in moments]
    assert total.max() > total[0] and total[-1] < total.max()
    assert [name for name, _ in scene.diagram.phases] == ["forward", "backward", "update"]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_reads_and_writes_what_its_node_does(network):
    scene, p = step_scene(network, 32, "sgd"), plan(network, 32, "sgd")
    built = graphs.program(p.graph, ladder_of)
    assert [part.launch.entry for part in p.parts] == [step.entry for step in built.steps]
    names = [t.name for t in p.graph.tensors.values() if t.kind in ("data", ACTIVATION, GRADIENT)]
    names = [n for n in names if n not in ("chunks", "gradients")]
    (read,) = (r for r in scene.reads if r.source == TENSORS)
    for n in range(scene.steps):
        cells = read.cells[read.start[n] : read.start[n + 1]]
        assert {names[i] for i in cells} <= set(p.node(n).tensors.values())
    assert scene.cells(KERNELS).tolist() == [
        max(k + 1 for k, part in enumerate(p.parts) if part.node == n) for n in range(len(p.graph.nodes))
    ]


def test_captions_name_kernel_tensors_and_bytes():
    scene = step_scene("lenet5", 32, "sgd")
    assert (
        scene.caption(0)
        == "conv1: kernel implicit_gemm reads x, conv1.w and conv1.b and writes conv1.y. 1.23 MB are allocated."
    )
    last = scene.caption(scene.steps - 1)
    assert last.startswith("sgd_float4 updates all weights in one launch")
    assert "launch 2 of 2" in " ".join(scene.caption(n) for n in range(scene.steps))


def test_layers_that_are_computed_again_have_a_sign_and_come_on_the_way_back():
    scene = step_scene("residual", 32, "sgd", None, Memory(every=3))
    again = [box for box in boxes(scene, KERNELS) if box.lines[0] == "↻"]
    forward = next(first for name, first in scene.diagram.phases if name == "backward")
    assert again and all(box.first >= forward for box in again)


def test_times_are_on_the_boxes_and_change_nothing_else():
    plain, timed = (step_scene("lenet5", 32, "sgd"), step_scene("lenet5", 32, "sgd", {"conv1": 0.25}, here=True))
    assert plain.key == timed.key and plain.steps == timed.steps
    (box,) = (b for b in boxes(timed, KERNELS) if b.lines[0] == "conv1")
    assert box.lines == ("conv1", "250 µs")
    (about,) = (a for a in timed.annotations if a.tensor == KERNELS)
    assert about.captions.templates[0].endswith("It takes 250 µs on this processor.")


def test_measured_memory_is_a_line_over_the_areas():
    p = plan("lenet5", 32, "sgd")
    sizes = {node.name: 1_000_000 + n for n, node in enumerate(p.graph.nodes)}
    plain, found = step_scene("lenet5", 32, "sgd"), step_scene("lenet5", 32, "sgd", here=True, held=sizes)
    assert plain.diagram.line is None
    assert found.diagram.line.name == "measured on this processor"
    assert found.diagram.line.values.tolist() == [sizes[p.node(n).name] for n in range(found.steps)]
    assert found.diagram.totals[0] == f"{plain.diagram.totals[0]}, 1 MB measured"
    meta, _ = payload(found)
    line = meta["diagram"]["areas"][-1]
    assert (line["name"], line["role"]) == (found.diagram.line.name, "ink")


def test_a_line_with_too_few_heights_is_refused():
    scene = step_scene("lenet5", 32, "sgd")
    with pytest.raises(SceneError, match="measured has not one height a step"):
        replace(scene, diagram=replace(scene.diagram, line=Line("measured", np.zeros(3))))


def test_the_kernel_beside_the_picture_is_its_function():
    text, first = function_text("optimizer/" + sources_of("sgd"), "sgd_float4")
    assert "sgd_float4" in text and text.rstrip().endswith("}")
    lines = sources.text("optimizer/" + sources_of("sgd")).splitlines()
    assert lines[first - 1] == text.splitlines()[0]
    assert text.count("{") == text.count("}")


def sources_of(ladder: str) -> str:
    p = plan("lenet5", 32, ladder)
    return p.parts[-1].launch.source.partition("/")[2]


def test_equal_sources_are_sent_once():
    meta, _ = payload(step_scene("lenet5", 32, "sgd"))
    sent = [(s["text"], s["detail"]) for s in [meta["source"], *meta["nextSources"]] if "text" in s]
    assert len(set(sent)) == len(sent) < 22
    assert all(s["since"] == n + 1 for n, s in enumerate(meta["nextSources"]))
    assert len(json.dumps(meta)) < 90_000


def test_a_broken_rule_is_named():
    with pytest.raises(RuleError, match="10 images cannot be split into 4 equal parts"):
        step_scene("lenet5", 10, "sgd", None, Memory(parts=4))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"last": 99}, "leaves the steps"),
        ({"row": 9}, "outside the diagram"),
        ({"index": 999}, "no cell"),
        ({"role": "pink"}, "role"),
    ],
)
def test_a_diagram_that_breaks_the_contract_is_refused(changes, error):
    scene = step_scene("lenet5", 32, "sgd")
    broken = replace(scene.diagram.boxes[0], **changes)
    with pytest.raises(SceneError, match=error):
        replace(scene, diagram=replace(scene.diagram, boxes=(broken, *scene.diagram.boxes[1:])))


def test_the_weights_of_the_layers_are_all_weights():
    scene = step_scene("lenet5", 32, "sgd")
    assert scene.cells(LAYERS).sum() == 4 * StepEvidence("lenet5", 32, "sgd").parameters() == 4 * 61_706
