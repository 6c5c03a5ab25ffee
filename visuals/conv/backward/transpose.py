"""Transposed convolution as scenes: those of the input's gradient, with the names of a forward operation.

The launches are the same (kernels/conv/backward/transpose.py), so cells, steps and lines are the same. Tensors and
sentences have other names: the input stands where the gradient of the output was, the output where that of the input was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.i18n import tr, trn
from kernels.ladders import find
from visuals.conv.backward import col2im, dinput, phases
from visuals.scene.parts import Annotation, Group, Tensor
from visuals.scene.scene import Scene
from visuals.scene.why_not import broken_rule

DIRECT, ATOMICS, GATHER, PHASES = (
    f"conv-transpose/{name}" for name in ("direct", "gemm-atomics", "gemm-gather", "implicit-gemm")
)
Texts = Mapping[str, str]


@dataclass(frozen=True)
class Wording:
    """The scene of a rung of conv-dinput, and its texts under the names of a transposed convolution: captions by kind of
    step, (symbol, title) of tensors, notes of cells, and the titles of groups that name a gradient."""

    build: Callable[..., Scene]
    kinds: Callable[[ConvShape], Mapping]  # of the scene of the gradient, in their order
    captions: Callable[[ConvShape], Texts]
    notes: Callable[[], Mapping[str, tuple[str, ...]]]


def transpose_scene(rung: str, t: TransposeShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of image 0 of inputs x [N,C,H,W] and w [C,K,R,S], of a small shape with one group."""
    wording, s = WORDINGS[rung], t.conv
    scene = wording.build(s, tiles, {"dy": inputs["x"], "w": inputs["w"]})
    texts = wording.captions(s)
    templates = tuple(texts[kind] for kind in wording.kinds(s))
    return replace(
        scene,
        key=f"{rung} {scene.key.partition(' ')[2]}",
        title=tr(find(rung).title),
        tensors=tuple(_renamed(tensor) for tensor in scene.tensors),
        groups=tuple(_retitled(group) for group in scene.groups),
        captions=replace(scene.captions, templates=templates),
        annotations=tuple(_reworded(a, wording.notes()) for a in scene.annotations),
    )


def why_not(t: TransposeShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    from visuals.conv.backward.scene import why_not as of_gradient

    if rule := broken_rule(rung, t, tiles):
        return rule
    return of_gradient(t.conv, rung.replace("conv-transpose", "conv-dinput"), tiles)


def _renamed(tensor: Tensor) -> Tensor:
    titles = {
        "dx": ("y", tr("output")),
        "dy": ("x", tr("input")),
        "spread": ("spread", tr("input, spread")),
        "fed": ("pixel", tr("pixels")),
        "adds": ("adds", tr("additions to each output")),
        "col": ("windows", tr("windows of the input pixels")),
    }
    notes = {"fed": tr("of the input that reach this output"), "prod": tr("pixel × tap")}
    symbol, title = titles.get(tensor.name, (tensor.symbol, tensor.title))
    return replace(tensor, symbol=symbol, title=title, note=notes.get(tensor.name, tensor.note))


def _retitled(group: Group) -> Group:
    return replace(group, title=tr("the same input, spread by the stride")) if group.rows == (("spread",),) else group


def _reworded(annotation: Annotation, notes: Mapping[str, tuple[str, ...]]) -> Annotation:
    return replace(annotation, captions=replace(annotation.captions, templates=notes[annotation.tensor]))


# -- direct ----------------------------------------------------------------------------------------------
def _direct(s: ConvShape) -> Texts:
    """Returns the captions of visuals.conv.backward.dinput.kinds_of. Their numbers are the same."""
    row = f"r = {{0}}: {{8}} + {s.pad_h} − {{0}}·{s.dilation_h} = {{2}}. "
    column = f"r = {{0}}, s = {{1}}: {{9}} + {s.pad_w} − {{1}}·{s.dilation_w} = {{2}}. "

    def hole(stride: int) -> str:
        return tr(
            "It is not a multiple of the stride {stride}. This is a hole between two input pixels.", stride=stride
        )

    sums = tr("The [pixel](input) {5} times the [tap](filter) {6} makes the [sum](output) {7}.")
    if s.K > 1:
        sums = tr("The products of [pixel](input) and [tap](filter) of {n} channels make the [sum](output) {7}.", n=s.K)
    counts = tr("Input pixels of each channel that reach it: {3}. Taps without one: {4} of {n}.", n=s.R * s.S)
    return {
        "row_hole": row + hole(s.u),
        "row_outside": row + tr("The input has no such row."),
        "column_hole": column + hole(s.v),
        "column_outside": column + tr("The input has no such column."),
        "link": tr("r = {0}, s = {1}: the input pixel in row {3}, column {4} reaches this output through this tap.")
        + " "
        + sums,
        "store": tr("All taps are complete. The thread stores its [sum](output) {7} as output ({8}, {9})."),
        "pixel": tr("Channel {0}, output ({1}, {2}).") + f" {counts} " + tr("The [output](output) is {5}."),
        "lonely": tr("Channel {0}, output ({1}, {2}): no input pixel reaches it. The [output](output) is 0."),
    }


def _direct_notes() -> Mapping[str, tuple[str, ...]]:
    return {"dy": (tr("Channel {0}, input pixel ({1}, {2}) is spread over {3} outputs of each map."),)}


# -- GEMM + col2im -----------------------------------------------------------------------------------------
def _product(s: ConvShape) -> str:
    return trn(
        "One matrix product: the [filters](filter), transposed, times the [input](input). Each column of the "
        "[result](workspace) is the window over which one input pixel is spread. Each element is one product.",
        "One matrix product: the [filters](filter), transposed, times the [input](input). Each column of the "
        "[result](workspace) is the window over which one input pixel is spread. Each element is a sum of {n} products.",
        s.K,
    )


def _atomics(s: ConvShape) -> Texts:
    window = tr("Thread {0} adds column {0} of the [windows](workspace): that of input pixel ({1}, {2}).")
    if s.C > 1:
        window = tr(
            "{n} threads, one per output map, add column {0} of the [windows](workspace): that of input pixel ({1}, {2}).",
            n=s.C,
        )
    again = tr("Atomic additions: {3}. Of them, {4} are to outputs that other windows add to as well.")
    return {
        "zero": tr("The [output](output) is set to 0. Atomic additions need a start."),
        "product": _product(s),
        "first": window + " " + tr("Atomic additions: {3}. No other window adds to these outputs."),
        "again": f"{window} {again}",
        "padding": window + " " + tr("The whole window is cut off by the padding: nothing is added."),
    }


def _columns() -> tuple[str, str]:
    return (tr("This element is added to channel {0}, output ({1}, {2})."), tr("The padding cuts this element off."))


def _atomics_notes() -> Mapping[str, tuple[str, ...]]:
    outputs = (
        tr("No window reaches this output."),
        tr("1 window reaches this output. No additions collide."),
        tr("{0} windows reach this output. {0} threads add to this address: their additions collide."),
    )
    return {"dx": outputs, "col": _columns()}


def _gather(s: ConvShape) -> Texts:
    output = tr("Channel {0}, output ({1}, {2}).")
    return {
        "product": _product(s),
        "pixel": output + " " + tr("Elements of the [windows](workspace) that reach it: {3}. They add up to {4}."),
        "lonely": output + " " + tr("No window reaches it. The [output](output) is 0."),
    }


# -- phases ------------------------------------------------------------------------------------------------
def _phases(s: ConvShape) -> Texts:
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


def _phases_notes() -> Mapping[str, tuple[str, ...]]:
    return {"dx": (tr("Phase of output ({0}, {1}): reached through {2} taps."),)}


WORDINGS: dict[str, Wording] = {
    DIRECT: Wording(dinput.dinput_scene, dinput.kinds_of, _direct, _direct_notes),
    ATOMICS: Wording(col2im.atomics_scene, col2im.atomics_kinds, _atomics, _atomics_notes),
    GATHER: Wording(col2im.gather_scene, col2im.gather_kinds, _gather, lambda: {"col": _columns()}),
    PHASES: Wording(partial(phases.phases_scene, title=phases.OF_OUTPUT), phases.kinds_of, _phases, _phases_notes),
}
