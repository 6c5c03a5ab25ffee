"""The scenes of transposed convolution: the launches and cells of the input's gradient, under other names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv.backward.transpose import PRESETS
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.runner import run, seeded_inputs
from tests.helpers.shapes import transpose_shapes
from visuals.conv.backward.scene import SCENES, backward_scene, why_not
from visuals.scene.payload import payload

TOY = PRESETS["transpose-toy"].shape
RUNGS = [rung for rung in SCENES if rung.startswith("conv-transpose")]
HARD = TransposeShape(1, 2, 4, 3, 2, 3, 2, stride=(3, 2), pad=(1, 0), output_pad=(2, 1), dilation=(1, 3))


def inputs_of(rung: str, t: TransposeShape):
    return seeded_inputs(find(rung).build(t, find(rung).default_tiles).of_role(INPUT))


def scene_and_output(rung: str, t: TransposeShape):
    inputs = inputs_of(rung, t)
    return backward_scene(rung, t, {}, inputs), run(rung, t, inputs, engine="emulator", measure=False).output


@pytest.mark.parametrize("t", [TOY, HARD], ids=str)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_scene_ends_with_what_the_kernel_stored(rung, t):
    scene, output = scene_and_output(rung, t)
    np.testing.assert_array_equal(scene.cells("dx"), output[0].ravel())
    assert scene.tensor("dx").symbol == "y" and scene.tensor("dx").size == t.K * t.P * t.Q
    payload(scene)


@settings(max_examples=2)
@given(transpose_shapes(max_extent=2).map(lambda t: t.with_(N=1, groups=1)))
def test_a_scene_of_any_shape_ends_with_what_the_kernel_stored(t):
    for rung in RUNGS:
        if not why_not(t, rung, {}):
            scene, output = scene_and_output(rung, t)
            np.testing.assert_array_equal(scene.cells("dx"), output[0].ravel())


@pytest.mark.parametrize("rung", RUNGS)
def test_no_text_speaks_of_a_gradient(rung):
    for t in (TOY, TOY.with_(C=2), TOY.with_(u=1, v=1, output_pad_h=0, output_pad_w=0)):
        scene = backward_scene(rung, t, {}, inputs_of(rung, t))
        texts = [scene.caption(step) for step in range(scene.steps)]
        texts += [tensor.title for tensor in scene.tensors] + [group.title for group in scene.groups]
        texts += [text for a in scene.annotations for text in a.captions.templates]
        assert "gradient" not in " ".join(texts)
        assert "phase of pixel" not in " ".join(texts)


@pytest.mark.parametrize("rung", RUNGS)
def test_its_launches_are_those_of_the_gradient(rung):
    """The same kernels, grids and numbers; only the names of the buffers differ."""
    names = {"x": "dy", "w": "w", "y": "dx"}
    other = find(rung.replace("conv-transpose", "conv-dinput"))
    steps = (found.build(s, found.default_tiles).steps for found, s in ((find(rung), TOY), (other, TOY.conv)))
    for ours, gradient in zip(*steps, strict=True):
        assert (ours.source, ours.grid, ours.block, ours.defines) == (
            gradient.source,
            gradient.grid,
            gradient.block,
            gradient.defines,
        )
        renamed = [names.get(a, a) if isinstance(a, str) else a.tobytes() for a in ours.args]
        assert renamed == [a if isinstance(a, str) else a.tobytes() for a in gradient.args]
