"""The chapters of the lesson on CPU and GPU: the same work on both, where the times cross, copies, and Amdahl's limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

from kernels.i18n import mark
from kernels.offload.machines import recorded_machine
from kernels.offload.works import NONE, PAGEABLE, PINNED
from pages.parts.chapters import Chapter, Question, Story, no_facts
from visuals import units
from visuals.offload import evidence
from visuals.offload.evidence import OffloadEvidence
from visuals.strip.facts import Facts

Evidences = Mapping[str, OffloadEvidence]  # by size
SMALL, LARGE = 32, 4096  # n of the products beside the one on the stage
N_EDGES, ELEMENT_EDGE, KERNEL_EDGES = (40, 150, 500), 1e6, (1.5, 3)
N_ANSWERS = (mark("Below n = 40"), mark("n = 40 to 150"), mark("n = 150 to 500"), mark("Above n = 500"))
NEAR = 1.25  # times that end together


def gemm(evidences: Evidences, size: int, copies: str = NONE) -> OffloadEvidence:
    """Returns a matrix product of the sentences, from the same source as the one on the stage."""
    stage = evidences["stage"]
    return OffloadEvidence("gemm", size, copies, measured=stage.measured if stage.key == "gemm" else None)


def facts(evidences: Evidences) -> Facts:
    """Returns the figures of the sentences: measured here or recorded."""
    found = {"stage": evidences["stage"], "small": gemm(evidences, SMALL)}
    texts = {f"{word}_{name}": text for word, one in found.items() for name, text in evidence.facts(one).items()}
    if machine := recorded_machine():
        counts = {**vars(machine), "processor": machine.on_processor, "gpu": machine.on_gpu}
        texts |= {f"machine_{name}": units.whole(n) for name, n in counts.items()}
    return texts


# -- answers and claims --------------------------------------------------------------------------------
def faster_when_small(evidences: Evidences) -> int | None:
    """Returns which side is faster for the small product: the processor, the GPU."""
    gain = gemm(evidences, SMALL).gain
    return None if gain is None else int(gain > 1)


def crossing_of(copies: str) -> Callable[[Evidences], int | None]:
    """Returns the right answer among N_ANSWERS: where the times of the product on the stage cross, in the middle of their
    range."""

    def right(evidences: Evidences) -> int | None:
        found = evidences["stage"].crossing(copies)
        return sum(sqrt(found.low * found.high) >= edge for edge in N_EDGES) if found else None

    return right


def pageable_sum(evidences: Evidences) -> int | None:
    """Returns from where on the GPU is faster with pageable copies: up to a million elements, more, nowhere."""
    stage = evidences["stage"]
    if not stage.cpu or not stage.of_gpu(PAGEABLE):
        return None
    found = stage.crossing(PAGEABLE)
    return 2 if not found else int(found.low >= ELEMENT_EDGE)


def without_kernel(evidences: Evidences) -> int | None:
    limit = evidences["stage"].kernel_limit
    return None if limit is None else sum(limit >= edge for edge in KERNEL_EDGES)


def gpu_is_faster(evidences: Evidences) -> bool | None:
    gain = evidences["stage"].gain
    return None if gain is None else gain > 1


def launch_is_most(evidences: Evidences) -> bool | None:
    gpu = evidences["stage"].gpu
    return None if gpu is None else gpu.parts["call"] > gpu.ms / 2


def end_together(evidences: Evidences) -> bool | None:
    gain = evidences["stage"].gain
    return None if gain is None else 1 / NEAR < gain < NEAR


def copies_grow_more_slowly(evidences: Evidences) -> bool | None:
    """Returns whether the copies are a smaller share of the processor's time for a large product."""
    small, large = evidences["stage"], gemm(evidences, LARGE, PINNED)
    if not (small.cpu and small.gpu and large.cpu and large.gpu):
        return None
    return large.gpu.copies_ms / large.cpu.ms < small.gpu.copies_ms / small.cpu.ms


def wins_when_used_often(evidences: Evidences) -> bool | None:
    """Returns whether one run with its copies is slower than the processor, and some runs after one copy are faster."""
    stage = evidences["stage"]
    return None if stage.gain is None else stage.gain < 1 and (stage.repeats or 0) > 1


CHAPTERS = (
    Chapter(
        mark("Few cores, many lanes"),
        (
            mark("A processor has few cores, here {machine_cores}. Each computes with up to {machine_vector} numbers at once."),
            mark("A GPU has many SMs, here {machine_sms}, with {machine_lanes} lanes each. At a time that is {machine_gpu} numbers, on the processor {machine_processor}."),
        ),
        {"picture": "machine"},
        step=2,
        nudge=mark("Each box is a core or an SM."),
    ),
    Chapter(
        mark("The same work on both"),
        (
            mark("Both multiply the same two matrices, {stage_size}. The GPU runs {stage_threads} threads."),
            mark("The matrices begin in the processor’s memory. The program copies them to the GPU, launches a kernel, waits, and copies the result back."),
        ),
        {"copies": PINNED},
        question=Question(
            mark("Your guess: which is faster for small matrices, 32 × 32, without copies?"),
            (mark("The processor"), mark("The GPU")),
            faster_when_small,
            mark("The processor takes {small_cpu}, the GPU {small_none}. The matrices here: {stage_cpu} and {stage_gpu}."),
        ),
        nudge=mark("Step through the parts: the line of the program that runs is lit."),
    ),
    Chapter(
        mark("Small work, part by part"),
        (
            mark("The [kernel](filter) takes only {stage_kernel}. But the [launch](workspace) before it takes {stage_call}."),
            mark("All caches are overwritten before each run, on both sides. Soon after another run a launch takes {stage_call_again}."),
        ),
        {"n": str(SMALL)},
        step=1,
        holds=launch_is_most,
        question=Question(
            mark("Your guess: from which size on is the GPU faster, without copies?"),
            N_ANSWERS,
            crossing_of(NONE),
            mark("From {stage_crossing_none} on: the range of several passes over the sizes."),
        ),
    ),
    Chapter(
        mark("Both end together"),
        (
            mark("Here both end at nearly the same time: the processor takes {stage_cpu}, the GPU {stage_gpu}."),
            mark("The number of products grows with n³. The launch takes about as long as before, {stage_call}."),
        ),
        {"n": "96"},
        step=2,
        holds=end_together,
        question=Question(
            mark("Your guess: from which size on is the GPU faster with copies from pinned memory?"),
            N_ANSWERS,
            crossing_of(PINNED),
            mark("From {stage_crossing_pinned} on. Without copies it was from {stage_crossing_none} on."),
        ),
    ),
    Chapter(
        mark("Copies move the crossing"),
        (
            mark("The copies take {stage_copied} of {stage_gpu}. Without them the GPU is done after {stage_none}, the processor after {stage_cpu}."),
            mark("The bytes grow with n², the work with n³. So the copies grow more slowly than the processor’s time."),
        ),
        {"n": "256", "copies": PINNED},
        step=3,
        holds=copies_grow_more_slowly,
        nudge=mark("In Explore, choose other sizes and see which side ends first."),
    ),
    Chapter(
        mark("One addition for each number"),
        (
            mark("A sum of two matrices uses each number once. So its time goes to moving numbers, not to adding them."),
            mark("NumPy adds on one core of the processor: {stage_cpu}. The GPU takes {stage_gpu} without copies."),
        ),
        {"work": "add", "n": "16777216"},
        step=2,
        holds=gpu_is_faster,
        question=Question(
            mark("Now the copies count, from pageable memory. From which size on is the GPU faster?"),
            (mark("From below a million elements on"), mark("From some millions on"), mark("At no size that was measured")),
            pageable_sum,
            mark("At {stage_size} the processor takes {stage_cpu}, the GPU with these copies {stage_pageable}."),
        ),
    ),
    Chapter(
        mark("Copy once, use often"),
        (
            mark("Each number crosses the bus for one addition. These copies take {stage_copied} of {stage_gpu}."),
            mark("If the arrays stay on the GPU, they are copied once. Then the GPU is faster from {stage_repeats} runs on."),
        ),
        {"work": "add", "n": "16777216", "copies": PAGEABLE},
        step=3,
        holds=wins_when_used_often,
        nudge=mark("The lesson [moving data](/transfers) compares pinned with pageable memory."),
    ),
    Chapter(
        mark("At a real size"),
        (
            mark("This product is {stage_size}. The processor takes {stage_cpu}."),
            mark("The GPU takes {stage_gpu} with its copies: it is {stage_gain} times as fast."),
            mark("But {stage_beside} of the GPU’s time is not the kernel."),
        ),
        {"n": str(LARGE), "copies": PINNED},
        step=2,
        size="real",
        holds=gpu_is_faster,
        question=Question(
            mark("Your guess: the kernel takes no time at all. How many times as fast is the whole then?"),
            (mark("Up to 1.5 times"), mark("1.5 to 3 times"), mark("More than 3 times")),
            without_kernel,
            mark("{stage_kernel_limit} times: copies and launch are left."),
        ),
    ),
    Chapter(
        mark("What is left sets the limit"),
        (
            mark("A program does other work too. Here {stage_left} of its time stays on the processor."),
            mark("The product is {stage_gain} times as fast on the GPU, the program {stage_speedup} times."),
            mark("A GPU that takes no time would make it {stage_limit} times as fast, and no more: Amdahl’s law."),
        ),
        {"n": str(LARGE), "copies": PINNED, "picture": "program", "left": "5"},
        step=2,
        holds=gpu_is_faster,
        nudge=mark("The next lesson, [many GPUs](/collectives), divides the other work over several GPUs."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts, no_facts)
