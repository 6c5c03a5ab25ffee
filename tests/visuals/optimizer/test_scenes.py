"""Scenes of the optimisers: they end with what the kernels stored, and each block updates the chunk of its line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.model.program import RuleError
from kernels.optimizer import ladder as optimizer
from kernels.optimizer.shape import AdamShape, SgdShape, sizes_text
from tests.helpers.program_traces import traced
from visuals.optimizer.scene import MAX_TENSORS, optimizer_scene
from visuals.scene.scene import number

RUNGS = {rung.name: (ladder, rung) for ladder in optimizer.LADDERS for rung in ladder.rungs if not rung.library}
DECIMALS = 2


def small(rung) -> dict[str, int]:
    return dict(rung.sets[0])


def check(name: str, shape) -> None:
    """Asserts that every array of a scene ends as the kernels left it, and that all bytes are counted."""
    _, rung = RUNGS[name]
    scene = optimizer_scene(name, shape, small(rung))
    t = traced(name, shape, tuple(sorted(small(rung).items())), 0, DECIMALS)
    for array in (b.name for b in t.program.buffers if b.name != "chunks"):
        for n, (first, count) in enumerate(shape.tensors):
            stored = t.arrays[array][first : first + count]
            np.testing.assert_array_equal(scene.cells(f"{array}{n}"), stored)
            assert (array == "g") == (stored == t.inputs[array][first : first + count]).all()
    readings = {r.label: r.values[-1] for r in scene.readings}
    assert readings["launches so far"] == len(t.traces)
    assert readings["bytes read from global memory"] == t.counters.total["bytes_ld"]
    assert readings["bytes written to global memory"] == t.counters.total["bytes_st"]
    for step in range(scene.steps):
        assert "{" not in scene.caption(step)


@pytest.mark.parametrize("name", RUNGS)
def test_a_scene_ends_with_what_the_kernels_stored(name):
    ladder, _ = RUNGS[name]
    check(name, ladder.shape("5 3 12 40"))


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=6)
@given(counts=st.lists(st.integers(1, 150), min_size=1, max_size=4))
def test_it_does_at_any_list_of_tensors(name, counts):
    ladder, _ = RUNGS[name]
    check(name, ladder.shape(sizes_text(tuple(counts)), lr=0.5, weight_decay=0.25))


def test_a_scene_with_another_order_of_tensors_is_detected(monkeypatch):
    """A deliberate fault: what is written to one tensor is shown in the next."""
    import visuals.optimizer.scene as module

    original = module.view_of

    def faulty(*args):
        view = original(*args)
        tensors = (replace(tensor, place=view.tensors[n ^ 1].place) for n, tensor in enumerate(view.tensors[:6]))
        return replace(view, tensors=(*tensors, view.tensors[6]))

    monkeypatch.setattr(module, "view_of", faulty)
    with pytest.raises(AssertionError):
        check("sgd/one-launch", SgdShape("5 5"))


@pytest.mark.parametrize("ladder", optimizer.LADDERS, ids=lambda ladder: ladder.name)
def test_numbers_of_a_caption_are_those_of_the_update(ladder):
    scene = optimizer_scene(f"{ladder.name}/per-tensor", ladder.shape("5 3"), {"BLOCK": 32})
    w, g, v = (scene.tensor(f"{name}1").values[0] for name in "wgv")
    text = scene.caption(1)
    assert "Launch 1, block 0" in text and "active lanes 3" in text and "element 0 of tensor 1" in text
    if ladder is optimizer.SGD:
        new = 0.9 * v + g
        assert f"0.9 · {number(v)} + {number(g)} = " in text and f" is {number(w)} − " in text
        assert f"{scene.cells('v1')[0]:.4g}".replace("-", "−") in text
        assert scene.cells("v1")[0] == pytest.approx(new, rel=1e-6)
        assert scene.cells("w1")[0] == pytest.approx(w - 0.01 * new, rel=1e-6)
    else:
        assert scene.cells("v1")[0] == pytest.approx(0.999 * v + 0.001 * g * g, rel=1e-6)
        change = float(scene.cells("w1")[0]) - float(w)
        assert (
            change and f"changes by {number(np.float32(change))}." in text
        )  # w itself has the same digits before and after


def test_each_block_reads_its_line_of_the_table():
    shape = AdamShape("40 5 70")
    scene = optimizer_scene("adam/one-launch", shape, {"BLOCK": 32})
    lines = [t for t in range(scene.steps) if "reads line" in scene.caption(t)]
    assert len(lines) == 3
    for n, t in enumerate(lines):
        first, count = shape.chunks[n]
        assert f"begins at {first} and has {count} elements" in scene.caption(t)
        assert f"belong to tensor {n}" in scene.caption(t)


def test_float4_are_loaded_before_they_are_updated():
    scene = optimizer_scene("sgd/float4", SgdShape("200"), {"BLOCK": 32, "PER": 1})
    loads = [t for t in range(scene.steps) if "None is used yet" in scene.caption(t)]
    w = scene.tensor("w0").values
    assert len(loads) == 2 and (scene.cells("w0", loads[0]) == w).all()
    assert (scene.cells("w0", loads[0] + 1)[:128] != w[:128]).all()
    assert (scene.cells("w0", loads[0] + 1)[128:] == w[128:]).all()


def test_too_many_tensors_are_refused():
    with pytest.raises(RuleError, match="at most 1,024 elements of 12 tensors are shown, there are 2,000 of 1"):
        optimizer_scene("sgd/float4", SgdShape("2000"), {})
    with pytest.raises(RuleError, match="there are 13 of 13"):
        optimizer_scene("sgd/float4", SgdShape(f"1*{MAX_TENSORS + 1}"), {})
