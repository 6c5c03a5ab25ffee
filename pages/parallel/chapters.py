"""The chapters of the lesson on parallel training: images, gradients, layers, stages, state; and how far it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernels.i18n import mark
from kernels.parallel import links, pipeline, tensor
from kernels.parallel.memory import HELD
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, ZERO_3
from kernels.parallel.timeline import LINK
from kernels.training.graph import ACTIVATION, FORWARD, STATE, WEIGHT
from pages.parts.chapters import Chapter, Question, Story, no_facts
from visuals.parallel import evidence as parallel
from visuals.parallel.evidence import FAR, ParallelEvidence
from visuals.strip.facts import Facts
from visuals.training.plan import NAMES

Evidences = Mapping[str, ParallelEvidence]  # by size
THIRDS = (1 / 3, 2 / 3)
PARTS = (1, 2, 4)  # answers to "in how many parts"
HELD_MICROS = (1, 4, 8)
BUBBLES = (0.15, 0.27, 0.5)
SPLIT_ASKED = WEIGHT, STATE, ACTIVATION
LOW, HIGH = 0.01, 0.5  # efficiencies between which answers lie


def facts(evidences: Evidences) -> Facts:
    """Returns the fields of the step on the stage."""
    return {f"stage_{name}": text for name, text in parallel.facts(_step(evidences)).items()}


def _step(evidences: Evidences) -> ParallelEvidence:
    return evidences["stage"]  # of this lesson


def split_role(evidences: Evidences) -> int | None:
    """Returns which of SPLIT_ASKED is split the most."""
    step = _step(evidences)
    return min(range(len(SPLIT_ASKED)), key=lambda n: _part(step, SPLIT_ASKED[n]))


def _part(step: ParallelEvidence, role: str) -> float:
    """Returns what a GPU holds of a role, as a share of what one GPU alone holds."""
    return step.held(role) / step.alone.largest(role)


def hidden(evidences: Evidences) -> int | None:
    """Returns how much of the communication is hidden: less than a third, about half, more than two thirds."""
    return sum(_step(evidences).timeline.hidden >= edge for edge in THIRDS)


def overlap_helps(evidences: Evidences) -> bool:
    """Returns whether the step is faster than one that combines its gradients after the way back."""
    step = _step(evidences)
    after = parallel.timelines.timeline(replace(step.plan, way=DATA), overlap=False)
    return step.timeline.total < after.total


def exchanges_of_a_pair(evidences: Evidences) -> int | None:
    """Returns how many all-reduces a pair of layers needs on the way forward."""
    plan = _step(evidences).plan
    found = [e for e in tensor.exchanges(plan, tensor.rank_graph(plan)) if e.phase == FORWARD]
    each = len(found) / len(tensor.PAIRS[plan.network])
    return PARTS.index(int(each)) if each in PARTS else None


def weight_gradients_decide(evidences: Evidences) -> bool:
    """Returns whether the gradients of weights take as long as on one GPU, and far longer than what is communicated."""
    step = _step(evidences)
    own = parallel.weight_gradients_us(step)
    return own == parallel.weight_gradients_us(step.on_one) and own > 5 * step.timeline.busy(0, LINK)


def bubble(evidences: Evidences) -> int | None:
    """Returns the bubble by the formula, of BUBBLES."""
    plan = _step(evidences).plan
    found = round(pipeline.bubble(plan.gpus, plan.micro), 2)
    return BUBBLES.index(found) if found in BUBBLES else None


def held_last(evidences: Evidences) -> int | None:
    """Returns how many micro-batches the last stage holds, of HELD_MICROS."""
    plan = _step(evidences).plan
    found = pipeline.in_flight(plan.way, plan.gpus, plan.gpus - 1, plan.micro)
    return HELD_MICROS.index(found) if found in HELD_MICROS else None


def holds_less(evidences: Evidences) -> bool:
    """Returns whether the last GPU has fewer activations with 1F1B than with GPipe."""
    plan = _step(evidences).plan
    ways = [ParallelEvidence(replace(plan, way=way)).holdings[-1] for way in (ONE_F_ONE_B, GPIPE)]
    return ways[0].largest(ACTIVATION) < ways[1].largest(ACTIVATION)


def state_parts(evidences: Evidences) -> int | None:
    """Returns in how many parts the state is split, of PARTS."""
    parts = round(1 / _part(_step(evidences), STATE))
    return PARTS.index(parts) if parts in PARTS else None


def all_are_split(evidences: Evidences) -> bool:
    """Returns whether a GPU holds less of every role than one GPU alone."""
    return all(_part(_step(evidences), role) < 1 for role in HELD)


def ring_far(evidences: Evidences) -> int | None:
    """Returns the efficiency of one ring over FAR GPUs: under 1 %, up to half, more."""
    found = _step(evidences).weak(FAR, links.FLAT)
    return sum(found >= edge for edge in (LOW, HIGH))


TRANSFORMER = {"network": "transformer"}
LARGE = TRANSFORMER | {"batch": "4096"}
PIPELINE = LARGE | {"micro": "8"}
CHAPTERS = (
    Chapter(
        mark("One step on four GPUs"),
        (
            mark("Each row is a GPU, and each box is as long as its work: kernels recorded on an {stage_device}."),
            mark("Thin rows show what moves between them. The boxes are predicted from these kernels."),
            mark("The prediction for {stage_batch} images is {stage_one} on one GPU and {stage_time} on {stage_gpus}."),
        ),
        LARGE,
        step=30,
        nudge=mark("Press Play: every GPU runs the same kernels, on other images."),
    ),
    Chapter(
        mark("Each GPU has its own images"),
        (
            mark("Data parallel: every GPU has all [weights](filter), and {stage_images} of the {stage_batch} images."),
            mark("Each step fills what the GPUs hold of one role. Dashed boxes are on other GPUs or come later."),
        ),
        LARGE | {"picture": "memory", "optimizer": "adam"},
        step=0,
        nudge=mark("Press Play to see all four roles."),
        question=Question(
            mark("Your guess: what is split over the GPUs?"),
            tuple(NAMES[role] for role in SPLIT_ASKED),
            split_role,
            mark("Each GPU has {stage_activations} of activations, one GPU alone {stage_one_activations}. The weights stay {stage_weights} on each."),
        ),
    ),
    Chapter(
        mark("Gradients move while others are computed"),
        (
            mark("All GPUs add their [gradients](output) with an all-reduce. Then all of them make the same update."),
            mark("The way back starts at the last layer, so its gradients are ready first. A [bucket](workspace) of them moves while the next layers still compute."),
        ),
        LARGE | {"bucket": "20"},
        step=26,
        question=Question(
            mark("Your guess: how much of the communication runs while the GPU computes?"),
            (mark("Less than a third"), mark("About half"), mark("More than two thirds")),
            hidden,
            mark("{stage_hidden}. The last bucket cannot hide: nothing is left to compute. All buckets at the end would take {stage_after} in place of {stage_time}."),
        ),
        nudge=mark("In Explore, set the bucket to 1,000 KB: one bucket, and nothing is hidden."),
        holds=overlap_helps,
    ),
    Chapter(
        mark("Split inside a layer"),
        (
            mark("Tensor parallel: all GPUs see all images, and each has a part of every large layer."),
            mark("The first layer of a pair is split by its outputs (columns), the second by its inputs (rows). Attention is split by heads."),
            mark("Each GPU then has a part of every sum, so the parts are added."),
        ),
        LARGE | {"way": TENSOR},
        step=12,
        holds=weight_gradients_decide,
        question=Question(
            mark("How many all-reduces does one pair need on the way forward?"),
            tuple(map(str, PARTS)),
            exchanges_of_a_pair,
            mark("One, and one on the way back. All {stage_exchanges} take {stage_moving} of {stage_time}. The gradients of weights take {stage_dw}, as on one GPU: fewer columns do not make them faster."),
        ),
    ),
    Chapter(
        mark("A pipeline and its bubble"),
        (
            mark("Now each GPU has a few layers, a stage. The images come in {stage_micro} micro-batches, one behind the other."),
            mark("At first and at the end some GPUs have nothing to compute: the bubble."),
        ),
        PIPELINE | {"way": GPIPE},
        step=18,
        question=Question(
            mark("Your guess: for what share of the step are {stage_gpus} equal stages idle?"),
            (mark("15 %"), mark("27 %"), mark("50 %")),
            bubble,
            mark("(GPUs − 1) / (micro-batches + GPUs − 1) = {stage_formula}. Here it is {stage_idle}: stages are not equal, and messages take time."),
        ),
        nudge=mark("In Explore, set one micro-batch: the bubble becomes {stage_bubble_1}."),
    ),
    Chapter(
        mark("1F1B: as long, with less memory"),
        (
            mark("[Activations](input) of a micro-batch must stay until it comes back. GPipe keeps those of all {stage_gpipe_held}."),
            mark("1F1B goes back as soon as it can: one forward, one backward. The formula of the bubble stays the same."),
        ),
        PIPELINE | {"way": ONE_F_ONE_B},
        step=30,
        question=Question(
            mark("Your guess: how many micro-batches does the last GPU hold at most?"),
            tuple(map(str, HELD_MICROS)),
            held_last,
            mark("Its activations need {stage_activations_1f1b}, with GPipe {stage_activations_gpipe}."),
        ),
        holds=holds_less,
    ),
    Chapter(
        mark("Nobody needs all of the state"),
        (
            mark("In data parallel every GPU keeps the same [optimiser state](filter). ZeRO splits it, and each GPU updates its part."),
            mark("Next it splits the [gradients](output), then the [weights](filter). A layer’s weights are gathered before it runs."),
        ),
        TRANSFORMER | {"way": ZERO_3, "picture": "memory", "optimizer": "adam", "batch": "32", "bucket": "10"},
        step=0,
        question=Question(
            mark("In how many parts is Adam’s state split here?"),
            tuple(map(str, PARTS)),
            state_parts,
            mark("A GPU keeps {stage_state} of {stage_one_state}, and up to {stage_weights} of the weights, {stage_one_weights}. It costs time: the step takes {stage_time}, on one GPU {stage_one}."),
        ),
        nudge=mark("In Explore, compare ZeRO 1, 2 and 3: each one splits more and moves more."),
        holds=all_are_split,
    ),
    Chapter(
        mark("To 10,000 GPUs"),
        (
            mark("Each GPU keeps its {stage_images} images, and more GPUs join: weak scaling. The curve under the picture shows its predicted efficiency."),
            mark("A ring takes two rounds for each GPU, so its time grows with their number."),
            mark("Nodes of {stage_node} GPUs add their gradients first, then the nodes do."),
        ),
        LARGE | {"gpus": "8", "batch": "8192"},
        step=40,
        size="real",
        question=Question(
            mark("Your guess: how efficient is one ring over {stage_far} GPUs?"),
            (mark("Under 1 %"), mark("1 to 50 %"), mark("Over 50 %")),
            ring_far,
            mark("Weak scaling: {stage_far_flat} in one ring, {stage_far_nodes} by nodes, {stage_node_efficiency} on {stage_node} GPUs. With the same {stage_batch} images on one GPU and on {stage_gpus} (strong scaling): {stage_efficiency}."),
        ),
        nudge=mark("The lesson [train](/train) runs one such step on this processor."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts, no_facts)
