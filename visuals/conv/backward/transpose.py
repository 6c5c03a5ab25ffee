"""The phases of a transposed convolution as a scene: those of the input's gradient, with the names of a forward operation.

The launches are the same (kernels/conv/backward/transpose.py), so cells, steps and lines are the same. Tensors and
sentences have other names: the input stands where the gradient of the output was, the output where that of the input was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.ladders import find
from visuals.conv.backward import phases
from visuals.scene.parts import Annotation, Tensor
from visuals.scene.scene import Scene

PHASES = "conv-transpose/implicit-gemm"
Texts = Mapping[str, str]


def phases_scene(t: TransposeShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of image 0 of inputs x [N,C,H,W] and w [C,K,R,S], of a small shape with one group."""
    s = t.conv
    scene = phases.phases_scene(s, tiles, {"dy": inputs["x"], "w": inputs["w"]}, phases.OF_OUTPUT)
    texts = captions(s)
    return replace(
        scene,
        key=f"{PHASES} {scene.key.partition(' ')[2]}",
        title=tr(find(PHASES).title),
        tensors=tuple(_renamed(tensor) for tensor in scene.tensors),
        captions=replace(scene.captions, templates=tuple(texts[kind] for kind in phases.kinds_of(s))),
        annotations=tuple(_reworded(a) for a in scene.annotations),
    )


def _renamed(tensor: Tensor) -> Tensor:
    titles = {"dx": ("y", tr("output")), "dy": ("x", tr("input"))}
    symbol, title = titles.get(tensor.name, (tensor.symbol, tensor.title))
    return replace(tensor, symbol=symbol, title=title)


def _reworded(annotation: Annotation) -> Annotation:
    text = tr("Phase of output ({0}, {1}): reached through {2} taps.")
    return replace(annotation, captions=replace(annotation.captions, templates=(text,)))


def captions(s: ConvShape) -> Texts:
    """Returns the captions by kind of step, as visuals.conv.backward.phases.kinds_of."""
    start = tr("Phase of output ({0}, {1}): {3} outputs of each map. Taps that reach them: {2} of {n}.", n=s.R * s.S)
    if s.stride == (1, 1):
        start = tr("The stride is 1, so all {3} outputs of a map are one phase. Each is reached through all {2} taps.")
    return {
        "start": start,
        "empty": tr("Phase of output ({0}, {1}): {3} outputs of each map. No tap reaches them: they are 0."),
        "filters": tr("The block copies terms {0} to {1} of the [filters](filter) into shared memory."),
        "data": tr("It copies the [pixels](input) under the same taps.")
        + " "
        + tr("Of these {2} elements, {3} are outside the input: they become 0."),
        "barrier": tr("All threads of the block wait until both tiles are complete."),
        "multiply": tr(
            "Each element of the [result](output) gets the products of terms {0} to {1}. No factor is a hole."
        ),
        "store": tr(
            "The [sums](output) are stored to every row {0} + i·{u} and column {1} + j·{v} of the output.", u=s.u, v=s.v
        ),
    }
