"""The scene of a collective: the memories of all GPUs, and every move of its schedule, round by round.

Our ring is compiled from what the kernel did, if each GPU has a chunk to send: else GPUs overtake each other. The other pictures are made by
hand: they are of schedules, and most have no kernel of ours. Their numbers are those of the NumPy executor, which a test compares with the
kernels in the emulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from kernels.collectives import cost, executor, schedules
from kernels.collectives.emulated import record
from kernels.collectives.kernels import KERNELS
from kernels.collectives.schedules import Round, Schedule
from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, BROADCAST, ITEM, REDUCE_SCATTER, RING, CollectiveShape
from kernels.i18n import cached, tr
from visuals.collectives.captions import ALGORITHM_TITLES, CHAIN, END, MARKS, ROUNDS, START, TITLES
from visuals.collectives.views import ring_view
from visuals.scene.compiler.compile import compile_scene, watched_names
from visuals.scene.parts import Annotation, Captions, Flow, Group, Read, Reading, Source, Tensor, Write
from visuals.scene.scene import MAX_CACHED_SCENES, Scene
from visuals.scene.source import source_of

MAX_FLOWS = 8  # arrows between the GPUs: more would cover the numbers
THREADS = 64  # of a block: one warp waits, another signals
LARGEST = 9  # of the numbers at the start


def numbers(shape: CollectiveShape) -> list[np.ndarray]:
    """Returns what each rank holds at the start: float32 [elements], whole numbers from 1 to LARGEST."""
    rng = np.random.default_rng((shape.ranks, shape.elements))
    return [rng.integers(1, LARGEST + 1, shape.elements).astype(np.float32) for _ in range(shape.ranks)]


def held(shape: CollectiveShape) -> list[tuple[int, int]]:
    """Returns the elements (begin, end) that count at the start on each rank."""
    if shape.kind == ALL_GATHER:
        return [schedules.chunk(shape, rank) for rank in range(shape.ranks)]
    if shape.kind == BROADCAST:
        return [(0, shape.elements), *[(0, 0)] * (shape.ranks - 1)]
    return [(0, shape.elements)] * shape.ranks


def collective_scene(shape: CollectiveShape) -> Scene:
    """Returns the scene of a collective. Its steps are the start, a step for each round, and the end."""
    return _scene(shape)


@cached(MAX_CACHED_SCENES)
def _scene(shape: CollectiveShape) -> Scene:
    plan = schedules.of_shape(shape)
    arrays = numbers(shape)
    states = list(executor.states(plan, arrays))
    steps = len(plan.rounds) + 2
    if (shape.kind, shape.algorithm) == (ALL_REDUCE, RING) and shape.elements >= shape.ranks:
        return _ring(plan, arrays, states)
    return Scene(
        key=f"{shape.kind} {shape.algorithm} {shape.ranks} {shape.elements}",
        title=tr("{kind}, {algorithm}", kind=tr(TITLES[shape.kind]), algorithm=tr(ALGORITHM_TITLES[shape.algorithm])),
        tensors=tuple(
            Tensor(
                f"gpu{r}",
                f"gpu{r}",
                tr("memory of GPU {n}", n=r),
                "output",
                1,
                1,
                shape.elements,
                note=_note(shape) if not r else "",
            )
            for r in range(shape.ranks)
        ),
        groups=tuple(Group(((f"gpu{r}",),), "workspace") for r in range(shape.ranks)),
        steps=steps,
        step_name=tr("step"),
        order_name=tr("round by round"),
        order_note=tr(
            "All moves of a round happen together. On GPUs the slices of several rounds are under way at once."
        ),
        writes=tuple(_writes(plan, states)),
        reads=tuple(_reads(plan, steps)),
        captions=_captions(plan),
        readings=tuple(_readings(plan, states)),
        flows=tuple(_flows(plan, steps)),
        source=_source(plan),
        annotations=tuple(_sums(shape, arrays)),
    )


def _ring(plan: Schedule, arrays: Sequence[np.ndarray], states: Sequence[Sequence[np.ndarray]]) -> Scene:
    """Returns the scene of our ring, compiled from what the kernel did on all GPUs. The arrows and the bytes of a port are the schedule's."""
    s = plan.shape
    view = ring_view(s.ranks)
    recorded = record(RING, arrays, THREADS, watched_names(view))
    title = tr("{kind}, {algorithm}", kind=tr(TITLES[s.kind]), algorithm=tr(ALGORITHM_TITLES[s.algorithm]))
    scene = compile_scene(recorded, view, f"{s.kind} {s.algorithm} {s.ranks} {s.elements}", title, {"in0": _note(s)})
    port, _ = _readings(plan, states)
    last = np.concatenate([_last_writes(scene, f"gpu{rank}") for rank in range(s.ranks)])
    final = np.array([(last <= t).sum() for t in range(scene.steps)])
    return replace(
        scene,
        readings=(port, Reading(tr("numbers that are final"), final, "", "output")),
        flows=tuple(_flows(plan, scene.steps)),
        annotations=tuple(_sums(s, arrays)),
    )


def _last_writes(scene: Scene, name: str) -> np.ndarray:
    """Returns the step that writes each cell of a tensor last."""
    last = np.zeros(scene.tensor(name).size, int)
    for write in scene.writes:
        if write.target == name and write.cells is not None:
            np.maximum.at(last, write.cells, write.steps)
    return last


def _sums(shape: CollectiveShape, arrays: Sequence[np.ndarray]) -> Iterator[Annotation]:
    """Yields for each rank the sum that each cell has at the end, with the number of every GPU."""
    if shape.kind not in (ALL_REDUCE, REDUCE_SCATTER):
        return
    terms = " + ".join(f"{{{rank}}}" for rank in range(shape.ranks))
    text = tr("The sum of all GPUs is {terms} = {total}.", terms=terms, total=f"{{{shape.ranks}}}")
    numbers_of = np.stack([*arrays, sum(arrays)], axis=1)
    for rank in range(shape.ranks):
        yield Annotation(f"gpu{rank}", Captions((text,), np.zeros(shape.elements, int), numbers_of))


def _note(shape: CollectiveShape) -> str:
    """Returns how an array is cut into chunks."""
    sizes = {end - begin for begin, end in (schedules.chunk(shape, n) for n in range(shape.ranks))}
    if len(sizes) == 1:
        return tr("{ranks} chunks of {size}", ranks=shape.ranks, size=sizes.pop())
    return tr("{ranks} chunks of {low} or {high}", ranks=shape.ranks, low=min(sizes), high=max(sizes))


def _writes(plan: Schedule, states: Sequence[Sequence[np.ndarray]]) -> Iterator[Write]:
    """Yields the writes of each rank's array: what it holds at the start, then what each round changes."""
    for rank, (begin, end) in enumerate(held(plan.shape)):
        cells, steps = [np.arange(begin, end)], [np.zeros(end - begin, int)]
        values = [states[0][rank][begin:end]]
        for n, moves in enumerate(plan.rounds, 1):
            changed = np.unique(_cells([m for m in moves if m.destination == rank]))
            cells.append(changed)
            steps.append(np.full(changed.size, n))
            values.append(states[n][rank][changed])
        yield Write(f"gpu{rank}", np.concatenate(steps), np.concatenate(values), cells=np.concatenate(cells))


def _cells(moves: Sequence[schedules.Move], at_source: bool = False) -> np.ndarray:
    """Returns the elements that moves write, or read at their source."""
    parts = [np.arange(m.size) + (m.begin if at_source else m.to) for m in moves]
    return np.concatenate([np.zeros(0, int), *parts])


def _reads(plan: Schedule, steps: int) -> Iterator[Read]:
    """Yields what is read of each rank's array in each round."""
    for rank in range(plan.shape.ranks):
        parts = [np.unique(_cells([m for m in moves if m.source == rank], at_source=True)) for moves in plan.rounds]
        sizes = [0, 0, *(part.size for part in parts), 0]
        start = np.cumsum(sizes)
        assert len(start) == steps + 1
        yield Read(f"gpu{rank}", start, np.concatenate([np.zeros(0, int), *parts]))


def _adds(moves: Round) -> bool:
    return any(m.adds for m in moves)


def _captions(plan: Schedule) -> Captions:
    s = plan.shape
    busiest = sum(map(cost.port_elements, plan.rounds))
    templates = [START[s.kind], *_round_texts(s), END[s.kind]]
    kinds = [0, *(1 + _adds(moves) for moves in plan.rounds), len(templates) - 1]
    size = s.elements if s.kind != ALL_GATHER else schedules.chunk(s, 0)[1]
    rows = [(0, len(plan.rounds), size, s.ranks)]
    rows += [(n, len(plan.rounds), *_numbers(s, moves)) for n, moves in enumerate(plan.rounds, 1)]
    rows.append((0, len(plan.rounds), busiest, 0))
    return Captions(tuple(map(tr, templates)), np.array(kinds), np.array(rows))


def _round_texts(s: CollectiveShape) -> tuple[str, str]:
    """Returns the sentences of a round that copies and of one that adds."""
    copies, adds = (ROUNDS.get((s.algorithm, add), ROUNDS.get((s.algorithm, not add), "")) for add in (False, True))
    return (CHAIN, CHAIN) if (s.kind, s.algorithm) == (BROADCAST, RING) else (copies, adds)


def _numbers(s: CollectiveShape, moves: Round) -> tuple[int, int]:
    """Returns two numbers of a round's sentence: of a ring the chunk that GPU 0 sends, else the first sender; then the
    first receiver through one GPU, else the number of moves."""
    first = moves[0]
    if s.algorithm == RING:
        starts = [schedules.chunk(s, n) for n in range(s.ranks)]
        sent = next((starts.index((m.begin, m.end)) for m in moves if m.source == 0), 0)
        return sent, len(moves)
    return first.source, first.destination if s.algorithm == "naive" else len(moves)


def _readings(plan: Schedule, states: Sequence[Sequence[np.ndarray]]) -> Iterator[Reading]:
    """Yields what the busiest port has moved, how many numbers are complete, and what the cost model predicts."""
    port = np.cumsum([0, *map(cost.port_elements, plan.rounds)])
    yield Reading(tr("bytes through the busiest port"), np.append(port, port[-1]) * ITEM, "counted")
    done = complete(plan, states)
    yield Reading(tr("numbers that are final"), np.append(done, done[-1]), "", "output")


def complete(plan: Schedule, states: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Returns after each round how many elements of all ranks are as they must be at the end."""
    s = plan.shape
    if s.kind in (ALL_REDUCE, REDUCE_SCATTER):  # a sum is complete once every rank is in it: a bit of each
        bits = [np.full(s.elements, 2.0**rank, np.float32) for rank in range(s.ranks)]
        states = list(executor.states(plan, bits))
        arrays = bits
    else:  # each element has a number of its own
        arrays = [np.arange(s.elements, dtype=np.float32) + r * s.elements for r in range(s.ranks)]
        states = list(executor.states(plan, arrays))
    parts = executor.expected(s, arrays)
    return np.array(
        [sum(int((now[p.rank][p.begin : p.begin + p.values.size] == p.values).sum()) for p in parts) for now in states]
    )


def _flows(plan: Schedule, steps: int) -> Iterator[Flow]:
    """Yields an arrow for each link that the schedule uses, if they are few."""
    links = plan.link_elements()
    if len(links) > min(MAX_FLOWS, 2 * (plan.shape.ranks - 1)):  # where all read from all, arrows only cross
        return
    for source, destination in links:
        labels = ["", *(_label(plan.shape, moves, (source, destination)) for moves in plan.rounds), ""]
        known = tuple(dict.fromkeys(["", *labels]))
        text = np.array([known.index(label) for label in labels])
        assert len(text) == steps
        yield Flow(source, destination, known, text, (text > 0).astype(int))


def _label(s: CollectiveShape, moves: Round, link: tuple[int, int]) -> str:
    """Returns what crosses a link in a round; "" if nothing does."""
    found = [m for m in moves if m.link == link]
    if not found:
        return ""
    chunks = [schedules.chunk(s, n) for n in range(s.ranks)]
    part = found[0].begin, found[0].end
    if s.ranks > 1 and part in chunks and part != (0, s.elements):
        return tr("GPU {a} → {b}: chunk {n}", a=link[0], b=link[1], n=chunks.index(part))
    return tr("GPU {a} → {b}: {n} numbers", a=link[0], b=link[1], n=sum(m.size for m in found))


def _source(plan: Schedule) -> Source | None:
    """Returns our kernel of the algorithm with the line of each step, None if there is none."""
    s = plan.shape
    if s.kind != ALL_REDUCE or s.algorithm not in MARKS:
        return None
    start, adds, copies, end = MARKS[s.algorithm]
    kind = [0, *(1 if _adds(moves) else 2 for moves in plan.rounds), 3]
    return source_of(KERNELS[s.algorithm].source, [start, adds, copies, end], np.array(kind))
