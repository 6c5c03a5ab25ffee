"""The chapters of the lesson on many GPUs: why sums, through one GPU, the ring's two halves, a tree, latency, bytes, the rest."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.collectives import cost, schedules
from kernels.collectives.recorded import NCCL, Row, predicted_ms, rows
from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, NAIVE, ONE_SHOT, RING, TREE, TWO_SHOT
from kernels.i18n import mark
from pages.parts.chapters import Chapter, Question, Story, no_facts
from visuals import units
from visuals.collectives.evidence import CollectiveEvidence
from visuals.collectives.evidence import facts as facts_of
from visuals.strip.facts import Facts

Evidences = Mapping[str, CollectiveEvidence]  # by size
MORE = 8  # GPUs, where a chapter asks what changes with more of them
GROWTH = (1.1, 2, 5)  # between the answers to how many times as long MORE GPUs take
CHOICES = (
    (NAIVE,),
    (RING,),
    (TREE,),
    (ONE_SHOT, TWO_SHOT),
)  # "which is fastest?": those of one answer take the same time
SAME_WITHIN = 0.05  # of two times that count as the same
PORTS = (1.5, 1.75, 3.5)  # answers: times the array


def facts(evidences: Evidences) -> Facts:
    """Returns the fields of the sentences: those of both lengths, and what the ring and more GPUs would need."""
    found = {f"{size}_{name}": text for size, one in evidences.items() for name, text in facts_of(one).items()}
    ranks = evidences["stage"].shape.ranks
    return found | {
        "half": str(ranks - 1),
        "ring_rounds": str(2 * (ranks - 1)),
        "more": str(MORE),
        "more_times": units.ratio(_growth(evidences)),
        "ring_more": units.ratio(cost.bus_factor(ALL_REDUCE, MORE)),
        "ring_most": units.ratio(cost.bus_factor(ALL_REDUCE, 10**9)),
        **{
            f"two_{name.replace('-', '_')}": _recorded_of_two(name, evidences)
            for name in (RING, ONE_SHOT, TWO_SHOT, NCCL)
        },
        "two_device": _device_of_two(),
    }


def _two(algorithm: str, nbytes: int) -> Row | None:
    """Returns the recorded all-reduce of two GPUs at a length, None if there is none."""
    return next((row for row in rows(ALL_REDUCE, algorithm, 2) if row["bytes"] == nbytes), None)


def _recorded_of_two(algorithm: str, evidences: Evidences) -> str:
    row = _two(algorithm, evidences["real"].shape.nbytes)
    return units.time_(row["median_ms"]) if row else ""


def _device_of_two() -> str:
    found = rows(ALL_REDUCE, RING, 2)
    return found[0]["device"].removeprefix("NVIDIA ") if found else ""


def _growth(evidences: Evidences) -> float:
    """Returns how many times as long MORE GPUs take as those on the stage, by the model, at the strip's length."""
    s = evidences["real"].shape
    return predicted_ms(s.kind, s.algorithm, MORE, s.nbytes) / predicted_ms(s.kind, s.algorithm, s.ranks, s.nbytes)


def growth(evidences: Evidences) -> int | None:
    return sum(_growth(evidences) >= edge for edge in GROWTH)


def ring_port(evidences: Evidences) -> int | None:
    """Returns how much of the array each port of a ring of MORE GPUs moves."""
    times = cost.bus_factor(ALL_REDUCE, MORE)
    return PORTS.index(times) if times in PORTS else None


def fastest(evidences: Evidences) -> int | None:
    """Returns which of CHOICES is predicted to be the fastest at the strip's length; None if its algorithms differ by more
    than SAME_WITHIN."""
    times = [[evidences["real"].predicted_ms(name) for name in names] for names in CHOICES]
    best = min(range(len(CHOICES)), key=lambda n: min(times[n]))
    return best if max(times[best]) <= (1 + SAME_WITHIN) * min(times[best]) else None


def one_link_at_a_time(evidences: Evidences) -> bool:
    return all(len(moves) == 1 for moves in schedules.of_shape(evidences["stage"].shape).rounds)


def every_link_always(evidences: Evidences) -> bool:
    """Returns whether every GPU sends and receives in every round, and half of the rounds add."""
    plan = schedules.of_shape(evidences["stage"].shape)
    ranks = plan.shape.ranks
    adding = [moves[0].adds for moves in plan.rounds]
    return all(len(moves) == ranks for moves in plan.rounds) and adding == [True] * (ranks - 1) + [False] * (ranks - 1)


def a_tree_has_fewer_rounds(evidences: Evidences) -> bool:
    found = evidences["stage"]
    return found.rounds < 2 * (found.shape.ranks - 1) and found.port_bytes > found.least_bytes


def latency_decides(evidences: Evidences) -> bool:
    waits, moves = evidences["real"].shares
    return waits > moves


def bytes_decide(evidences: Evidences) -> bool:
    found = evidences["real"]
    return not latency_decides(evidences) and found.predicted_ms(RING) < found.predicted_ms(ONE_SHOT)


SMALL = {"ranks": "3", "elements": "12"}  # three arrays are below each other at 1280 x 720
CHAPTERS = (
    Chapter(
        mark("Every GPU needs the sum"),
        (
            mark("{stage_ranks} GPUs train one network, each with images of its own. Each has [gradients](input) in its memory: {stage_elements} numbers here."),
            mark("All must change their weights in the same way. So each needs [the sum](output) of all {stage_ranks} arrays."),
        ),
        SMALL,
        nudge=mark("Press Play: numbers move between the memories, round by round."),
    ),
    Chapter(
        mark("All through one GPU"),
        (
            mark("The plainest way: GPU 0 receives every array, adds them all and sends [the sum](output) back."),
            mark("Only one link is busy in each round. The others wait. The port of GPU 0 moves {stage_times} times the array."),
        ),
        {"algorithm": NAIVE, **SMALL},
        step=1,
        loop=(0, 5),
        question=Question(
            mark("Your guess: how long would {more} GPUs take, against {stage_ranks}?"),
            (mark("The same"), mark("Up to 2 times"), mark("Up to 5 times"), mark("Longer")),
            growth,
            mark("The model predicts {more_times} times as long: each further GPU adds two rounds with the whole array."),
        ),
        holds=one_link_at_a_time,
    ),
    Chapter(
        mark("A ring: first the sums"),
        (
            mark("Each array is cut into {stage_ranks} chunks. In each round every GPU sends one chunk to the next: what it has received, and its own numbers [added](output)."),
            mark("After {half} rounds each GPU has received the sum of all others for one chunk. This half is a reduce-scatter."),
        ),
        SMALL,
        step=1,
        loop=(0, 2),
        nudge=mark("Each arrow names the chunk that crosses its link in this round."),
        holds=every_link_always,
    ),
    Chapter(
        mark("A ring: then the copies"),
        (
            mark("The [complete chunks](output) go round once more. Each GPU copies what it receives: this half is an all-gather."),
            mark("In {stage_rounds} rounds each port sends {stage_times} times the array. All links are busy in every round."),
        ),
        SMALL,
        step=3,
        loop=(3, 4),
        question=Question(
            mark("Your guess: how much does each port send in a ring of {more} GPUs?"),
            (mark("1.5 times the array"), mark("1.75 times the array"), mark("3.5 times the array")),
            ring_port,
            mark("{ring_more} times the array. However many GPUs there are, it is less than {ring_most} times."),
        ),
        holds=every_link_always,
    ),
    Chapter(
        mark("A tree has fewer rounds"),
        (
            mark("GPUs add in pairs, so each round halves the number of partial sums. Then [the sum](output) returns the same way."),
            mark("{stage_ranks} GPUs need {stage_rounds} rounds, a ring {ring_rounds}. But every round moves the whole array: {stage_times} times in all."),
        ),
        {"algorithm": TREE, "ranks": "4"},  # of more GPUs the picture shows no arrows
        step=1,
        loop=(0, 5),
        nudge=mark("Our kernel cuts the array into slices: some travel up the tree while others travel down."),
        holds=a_tree_has_fewer_rounds,
    ),
    Chapter(
        mark("Small arrays: latency decides"),
        (
            mark("A round takes time before its first byte arrives: its latency, {real_waits} of the predicted time at {real_length}."),
            mark("One-shot has one round: every GPU reads all arrays and [adds](output) them. Two-shot has two: each GPU adds one chunk, then all GPUs read the sums."),
        ),
        {"algorithm": ONE_SHOT, "bytes": "16 KiB", **SMALL},
        step=1,
        size="real",
        question=Question(
            mark("Your guess: which is the fastest at {real_length}?"),
            (mark("Through one GPU"), mark("Ring"), mark("Tree"), mark("One-shot or two-shot")),
            fastest,
            mark(
                "The model predicts {real_predicted_one_shot} for one-shot, {real_predicted_two_shot} for two-shot, {real_predicted_tree} for a "
                "tree and {real_predicted_ring} for a ring. Recorded on two {two_device}: {two_one_shot} and {two_two_shot} for the first two."
            ),
        ),
        holds=latency_decides,
    ),
    Chapter(
        mark("Large arrays: bytes decide"),
        (
            mark("At {real_length} latency is only {real_waits} of the predicted time. Now the bytes of each port count."),
            mark("The model predicts {real_predicted_ring} for a ring and {real_predicted_one_shot} for one-shot, which moves whole arrays."),
            mark("Recorded on two {two_device}: our ring {two_ring}, NCCL {two_nccl}."),
        ),
        {"bytes": "1 GiB", **SMALL},
        step=4,
        size="real",
        nudge=mark("In Explore, look for the length at which both lines of the chart cross."),
        holds=bytes_decide,
    ),
    Chapter(
        mark("The halves alone, and others"),
        (
            mark("Both halves of a ring are collectives of their own. If each GPU updates only its chunk of the weights, an [all-gather](output) then gives them to all."),
            mark("A broadcast copies one array to all GPUs. An all-to-all moves a block from every GPU to every other."),
        ),
        {"kind": ALL_GATHER, **SMALL},
        step=1,
        loop=(0, 2),
        nudge=mark("The next lesson, [parallel training](/parallel), sums the gradients of a whole step this way."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts, no_facts)
