"""The chapters of the lesson on layers: one number forward, what is kept of it, its gradient on the way back, the loss."""

from __future__ import annotations

from kernels.elementwise.shape import ReluShape
from kernels.i18n import mark
from kernels.pooling.shape import MaxPoolShape
from pages.layers import address
from pages.layers.layers import BACKWARD
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.strip.facts import Evidences, Facts, Right

COLLISIONS = ("0", "2", "5", "9")
SMALLER = (4, 8, 32)  # times
SCATTER = "max-pool-backward/scatter"
FLOAT = 4  # bytes


def facts(evidences: Evidences) -> Facts:
    """Returns the bytes of y and of ReLU's mask at each size, and on the stage the atomic additions and those that collide."""
    found = {}
    for size, one in evidences.items():
        if isinstance(one.shape, ReluShape):
            found[f"{size}_y"] = units.bytes_(FLOAT * one.shape.elements)
            found[f"{size}_mask"] = units.bytes_(one.shape.mask_bytes) if one.shape.mask_bytes else ""
    stage = evidences.get("stage")
    if stage and stage.rung.name == SCATTER and isinstance(stage.shape, MaxPoolShape):
        atomics, again = address.readings("max-pool", BACKWARD, stage.rung.name, stage.shape, stage.tiles)
        found |= {"stage_atomics": f"{atomics:.0f}", "stage_again": f"{again:.0f}"}
    return found


def again_is(*answers: str) -> Right:
    """Returns the right answer where each is a number of atomic additions that collide."""

    def right(evidences: Evidences) -> int | None:
        value = facts(evidences).get("stage_again")
        return answers.index(value) if value in answers else None

    return right


def mask_is_smaller(size: str) -> Right:
    """Returns the right answer where each of SMALLER is how often a mask fits into y."""

    def right(evidences: Evidences) -> int | None:
        shape = evidences[size].shape if size in evidences else None
        if not isinstance(shape, ReluShape) or not shape.mask_bytes:
            return None
        return SMALLER.index(round(FLOAT * shape.elements / shape.mask_bytes))

    return right


POOL = {"layer": "max-pool"}
CHAPTERS = (
    Chapter(
        mark("One number in, one number out"),
        (
            mark("ReLU follows nearly every convolution. It replaces [numbers](input) below 0 by 0, and keeps the others."),
            mark("Each thread computes one element of [y](output). There is one comparison for 8 bytes, so arithmetic does not limit this kernel."),
        ),
        {"layer": "relu"},
        loop=(0, 1),
        size="real",
        nudge=mark("Press Play: each step is one warp."),
    ),
    Chapter(
        mark("What must be kept"),
        (
            mark("Training needs a way back, and the gradient passes only where x was positive."),
            mark("y says where, but then this activation must stay in memory until the backward pass."),
            mark("A [mask](workspace) of bits is enough. One instruction packs the bits of 32 lanes into one word."),
        ),
        {"layer": "relu", "keep": "bits"},
        step=1,
        loop=(0, 3),
        size="real",
        question=Question(
            mark("Your guess: how many times smaller than y is the mask?"),
            tuple(map(str, SMALLER)),
            mask_is_smaller("real"),
            mark("At {real_shape}, y has {real_y}. The mask has {real_mask}."),
        ),
        nudge=mark("Deep networks can also keep nothing and compute y again: recompute saves memory and costs work."),
    ),
    Chapter(
        mark("The way back"),
        (
            mark("Forward, the kernel read above and wrote below. Now the same arrays are read below and written above."),
            mark("[dy](output) is the gradient of y: how the loss changes with each element. If the bit is 1, [dx](input) gets dy, and 0 otherwise."),
        ),
        {"layer": "relu", "pass": BACKWARD, "keep": "bits"},
        loop=(0, 1),
        size="real",
        nudge=mark("In Explore, press forward and backward: only the direction changes."),
    ),
    Chapter(
        mark("The largest of a window"),
        (
            mark("Max pooling keeps the largest pixel of each [window](input). Windows of 3 × 3 at stride 2 overlap: the pixel in row 1, column 1 is the largest pixel of four windows."),
            mark("Windows reach one pixel beyond the edge: this padding is not drawn and never counts."),
            mark("Beside y the kernel stores an [index](workspace), the place of the largest pixel, for the way back."),
        ),
        POOL,
        step=1,
        loop=(0, 9),
        size="real",
    ),
    Chapter(
        mark("Scatter: sums collide"),
        (
            mark("Each output sends its gradient to the pixel that it took. This is a scatter."),
            mark("Pixel (1, 1) was taken by four windows, so four threads add to one float. They use atomic additions, because plain additions could lose some."),
        ),
        POOL | {"pass": BACKWARD, "rung": "scatter"},
        step=2,
        loop=(0, 9),
        size="real",
        question=Question(
            mark("Of {stage_atomics} atomic additions, how many go to a pixel that was added to before?"),
            COLLISIONS,
            again_is(*COLLISIONS),
            mark("{stage_again} of {stage_atomics}."),
        ),
    ),
    Chapter(
        mark("Gather: none collides"),
        (
            mark("Now each thread owns a pixel of [dx](output) and checks the windows that contain it."),
            mark("It adds the gradients of those that took its pixel, in a register. This is a gather: no atomics, no zeros first."),
            mark("But most windows that a thread checks have taken another pixel."),
        ),
        POOL | {"pass": BACKWARD, "rung": "gather"},
        step=6,
        loop=(0, 24),
        size="real",
        question=faster(
            mark("Your guess: is it faster than the scatter?"),
            SCATTER, "real",
            mark("It takes {real_time}. {real_against_scatter}"),
        ),
    ),
    Chapter(
        mark("A sum over everything"),
        (
            mark("A bias is added to every pixel of its channel, in all images. So its gradient is a sum over all of them."),
            mark("Atomic additions for all elements would go to few addresses. Here a block first adds up its part, in registers and by a tree in [shared memory](workspace), and then needs one."),
        ),
        {"layer": "bias", "pass": BACKWARD, "rung": "block"},
        readable=("acc1",),
        step=4,
        loop=(0, 16),
        size="real",
        question=faster(
            mark("Your guess: is it faster than one atomic addition per element?"),
            "bias-backward/atomics", "real",
            mark("It takes {real_time}. {real_against_atomics}"),
        ),
        nudge=mark("Batch norm and layer norm, in Explore, need such sums too, over a channel or a row."),
    ),
    Chapter(
        mark("Where gradients begin"),
        (
            mark("The loss compares a row of [logits](input) with the right class, its label. This is cross-entropy."),
            mark("Its gradient is softmax(x), minus 1 at the label. Both need maximum and sum, so one kernel computes both and keeps the row in [shared memory](input)."),
        ),
        {"layer": "cross-entropy", "pass": "step", "rung": "shared-row"},
        readable=("x", "dx", "loss"),
        step=6,
        loop=(0, 9),
        size="real",
        question=faster(
            mark("Your guess: is it faster than two kernels, one for the loss and one for the gradient?"),
            "cross-entropy-step/two-kernels", "real",
            mark("It takes {real_time}. {real_against_two_kernels}"),
        ),
        nudge=mark("From here the gradient goes back through all layers to the weights: in FP16, loss scaling keeps small values above 0."),
    ),
    Chapter(
        mark("A small step for each weight"),
        (
            mark("The gradient says in which direction each [weight](filter) lowers the loss, and the optimiser takes a small step that way."),
            mark("With momentum, a step follows the [mean of recent gradients](input). Adam also divides by the root of their [mean square](workspace)."),
            mark("One epoch, a pass over all training images, takes many such steps."),
        ),
        {"layer": "adam", "pass": "update", "rung": "one-launch"},
        readable=("w0", "g0", "m0", "v0"),
        step=1,
        size="real",
        question=faster(
            mark("One launch updates all tensors. Your guess: is it faster than a launch for each tensor?"),
            "adam/per-tensor", "real",
            mark("It takes {real_time}. {real_against_per_tensor}"),
        ),
        nudge=mark("In FP16 small steps would vanish, so master weights stay FP32: the next lesson, [train](/train), takes many such steps."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
