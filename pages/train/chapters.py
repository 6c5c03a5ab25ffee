"""The chapters of the lesson on training: the way forward, what is kept, the way back, the update, the batch, learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernels.i18n import mark
from kernels.training.graph import ACTIVATION, GRADIENT, STATE, WEIGHT
from kernels.training.step import PLAIN
from pages.parts.chapters import Chapter, Question, Story, no_facts
from visuals.strip.facts import Facts, Right
from visuals.training import evidence as steps
from visuals.training.evidence import StepEvidence
from visuals.training.plan import NAMES, plan

Evidences = Mapping[str, StepEvidence]  # by size
SMALL, LARGE = 32, 256  # images of the two batches that are compared
TIMES = (1, 2, 4, 8)  # answers to "how many times as much"
ROLES_ASKED = WEIGHT, ACTIVATION, GRADIENT
BACK_TO_FORWARD = (0.75, 1.25)  # below, about as many, above


def facts(evidences: Evidences) -> Facts:
    """Returns the fields of the step on the stage, and of a batch of SMALL images beside it."""
    step = evidences["stage"]
    found = {f"stage_{name}": text for name, text in steps.facts(step).items()}
    found["stage_plain_peak"] = steps.facts(plain(step))["peak"]
    found["stage_added"] = str(len(step.plan.parts) - len(plain(step).plan.parts))
    small = steps.StepEvidence(step.network, SMALL, step.optimizer)
    return found | {f"small_{name}": text for name, text in steps.facts(small).items()}


def largest_role(evidences: Evidences) -> int | None:
    """Returns which of ROLES_ASKED has the most bytes at the peak."""
    role = steps.largest_role(evidences["stage"])
    return ROLES_ASKED.index(role) if role in ROLES_ASKED else None


def backward_against_forward(evidences: Evidences) -> int | None:
    """Returns whether the way back has fewer launches than the way forward, about as many, or more."""
    p = evidences["stage"].plan
    ratio = p.launches("backward") / p.launches("forward")
    return sum(ratio >= edge for edge in BACK_TO_FORWARD)


def state_against_weights(evidences: Evidences) -> int | None:
    p = evidences["stage"].plan
    times = round(p.largest(STATE) / p.largest(WEIGHT))
    return TIMES.index(times) if times in TIMES else None


def growth(role: str) -> Right:
    """Returns the right answer to how many times as much of a role a batch of LARGE needs as one of SMALL."""

    def right(evidences: Evidences) -> int | None:
        step = evidences["stage"]
        small, large = (plan(step.network, n, step.optimizer).largest(role) for n in (SMALL, LARGE))
        times = round(large / small)
        return TIMES.index(times) if times in TIMES else None

    return right


def lower_peak(evidences: Evidences) -> int | None:
    """Returns how much lower the peak is than with all activations kept: under 10 %, up to 40 %, more."""
    step = evidences["stage"]
    lower = 1 - int(step.plan.total.max()) / int(plain(step).plan.total.max())
    return sum(lower >= edge for edge in (0.1, 0.4))


def plain(step: steps.StepEvidence) -> steps.StepEvidence:
    """Returns the same step with all activations kept."""
    return replace(step, memory=PLAIN, measured=None)


def guesses_one_of_ten(evidences: Evidences) -> int | None:
    """Returns the answer for a network that finds all classes equally likely."""
    classes = steps.NETWORKS[evidences["stage"].network].classes
    return (2, 10, 50).index(100 // classes) if 100 // classes in (2, 10, 50) else None


def graph_is_faster(evidences: Evidences) -> int | None:
    """Returns how many times as long launches one by one take as a graph: about the same, up to 3 times, more."""
    record = evidences["stage"].record or {}
    if not (record.get("one_by_one_us") and record.get("graph_us")):
        return None
    return sum(record["one_by_one_us"] / record["graph_us"] >= edge for edge in (1.1, 3))


LEARNING = mark("It learns")
LENET = {"network": "lenet5", "batch": str(LARGE)}
CHAPTERS = (
    Chapter(
        mark("One step is many launches"),
        (
            mark("{stage_network} reads handwritten digits with {stage_parameters} weights."),
            mark("Boxes with a name are kernels. Coloured boxes are [tensors](input): what one kernel writes, the next one reads."),
            mark("Press Play: {stage_launches} launches run in this order."),
        ),
        LENET,
        nudge=mark("Click a box to read what it is."),
    ),
    Chapter(
        mark("What must be kept"),
        (
            mark("On the way forward each layer writes its [activations](input). Most must stay in memory: the way back reads them again."),
            mark("The chart shows the memory of each launch."),
        ),
        LENET,
        step=14,
        loop=(0, 14),
        question=Question(
            mark("Your guess: what needs the most memory at the peak of this step?"),
            tuple(NAMES[role] for role in ROLES_ASKED),
            largest_role,
            mark("The peak is on the way back, at launch {stage_peak_launch}. Gradients: {stage_peak_gradients}. Activations that are still kept: {stage_peak_activations}. All weights: {stage_peak_weights}."),
        ),
    ),
    Chapter(
        mark("The way back"),
        (
            mark("The loss compares the outputs with the labels. From there a [gradient](output) goes back through every layer."),
            mark("A layer with weights computes the gradient of these weights and, except the first, dx for the layer before."),
            mark("After the last reader of a tensor, its memory is free."),
        ),
        LENET,
        step=28,
        loop=(15, 42),
        question=Question(
            mark("Does the way back need fewer launches than the way forward?"),
            (mark("Fewer"), mark("About as many"), mark("More")),
            backward_against_forward,
            mark("{stage_forward} launches go forward, {stage_backward} go back."),
        ),
        nudge=mark("Memory peaks at launch {stage_peak_launch}, {stage_peak_node}: {stage_peak}."),
    ),
    Chapter(
        mark("One launch changes all weights"),
        (
            mark("The optimiser moves each [weight](filter) against its gradient. All weights are in one buffer, so one launch is enough."),
            mark("Adam also keeps two running averages for each weight, from step to step."),
        ),
        LENET | {"optimizer": "adam", "lr": "0.002"},
        step=43,
        question=Question(
            mark("How many times the memory of the weights is Adam’s state?"),
            tuple(map(str, TIMES)),
            state_against_weights,
            mark("Weights: {stage_weights}. State: {stage_state}."),
        ),
    ),
    Chapter(
        mark("More images, more memory"),
        (
            mark("The batch is the number of images in one step: here {stage_batch}. Weights and their state do not depend on it."),
            mark("[Activations](input) do: each image needs its own."),
        ),
        LENET,
        step=14,
        question=Question(
            mark("Your guess: {small_batch} become {stage_batch} images. How many times as large are the activations?"),
            tuple(map(str, TIMES)),
            growth(ACTIVATION),
            mark("At their largest: from {small_activations} to {stage_activations}. The whole peak goes from {small_peak} to {stage_peak}."),
        ),
        nudge=mark("In Explore, set parts: the images then go through the network in parts, and their gradients are added."),
    ),
    Chapter(
        mark("Compute again, keep less"),
        (
            mark("Here only one layer in three keeps its result. The way back computes the others again: the boxes with ↻."),
            mark("The step has {stage_launches} launches, {stage_added} more. The numbers stay the same, bit by bit."),
        ),
        {"network": "residual", "batch": str(LARGE), "keep": "3"},
        step=45,
        loop=(27, 88),
        question=Question(
            mark("Your guess: how much lower is the peak of memory?"),
            (mark("Under 10 %"), mark("10 to 40 %"), mark("Over 40 %")),
            lower_peak,
            mark("{stage_plain_peak} become {stage_peak}."),
        ),
    ),
    Chapter(
        LEARNING,
        (
            mark("Press Train. This processor runs the step again and again, with 1,500 handwritten digits."),
            mark("After each epoch the network reads 297 new digits. After Stop, Resume goes on bit for bit."),
        ),
        {"network": "lenet5"},
        question=Question(
            mark("Before training: what share does it recognise by chance?"),
            (mark("2 %"), mark("10 %"), mark("50 %")),
            guesses_one_of_ten,
            mark("There are ten digits. The curve begins near that share."),
        ),
    ),
    Chapter(
        mark("Too large a step"),
        (
            mark("The learning rate says how far each weight moves: here far too far."),
            mark("Press Train: the numbers grow until one is no number (NaN). The page names the step, and the first tensor with such a number."),
        ),
        {"network": "lenet5", "lr": "10000"},
        nudge=mark("In Explore, look for the largest rate that still learns."),
    ),
    Chapter(
        mark("Launches cost time too"),
        (
            mark("These kernels are short. The processor may need longer to launch one than the GPU needs to run it."),
            mark("A CUDA graph holds all {stage_launches} launches and is submitted once."),
        ),
        {"network": "lenet5", "batch": str(SMALL)},
        size="real",
        nudge=mark("The next lesson, [precision](/precision), trains with fewer bits."),
        question=Question(
            mark("Your guess: how long do launches one by one take, against one graph?"),
            (mark("The same"), mark("Up to 3 times"), mark("More than 3 times")),
            graph_is_faster,
            mark("One graph takes {stage_graph}, launches one by one {stage_one_by_one}: {stage_gain} times as long. PyTorch eager takes {stage_eager}."),
        ),
    ),
)  # fmt: skip

LEARNS = next(n for n, chapter in enumerate(CHAPTERS) if chapter.title == LEARNING)  # the curve comes with it
STORY = Story(CHAPTERS, facts, no_facts)
