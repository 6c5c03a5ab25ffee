"""Rings of attention on Hopper: every column is what the emulator executed, in this order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.shape import AttentionShape
from kernels.engines.emulator.events import Kind
from kernels.ladders import find
from visuals.attention.ring import RingScene, ring_scene
from visuals.attention.ring_order import ON_TURN, SOFTMAX, K, O, P, Q, S, V, folded
from visuals.attention.ring_plan import RINGS, RingPlan
from visuals.scene.payload import payload
from visuals.scene.ring import ARRIVED, FOLDED, FREE, ISSUE, MULTIPLY, STATES, STORE

SMALL = {"Br": 128, "Bc": 64, "STAGES": 2}
SHAPE = AttentionShape(1, 1, 256, 64, dtype="fp16")
MAX_WORDS = 36
every_rung = pytest.mark.parametrize("rung", RINGS)


def plan_at(rung, s=SHAPE):
    tiles = {"Bc": 64} if rung == "attention/wgmma" else SMALL
    return RingPlan(s, rung, find(rung).default_tiles | tiles)


def assert_events(plan):
    """Checks the slots against the trace: coordinates of copies, bytes of products, in the order of the events."""
    e, found = plan.trace.events, []
    Bc, Br = (int(dict(plan.launch.defines)[name]) for name in ("Bc", "Br"))
    at, names = {}, {}
    loops = {"K": 0, "V": 0, "Q": 0}
    for n in range(len(e)):
        kind, number = Kind(e.kind[n]), int(e.number[n])
        if kind == Kind.COPY:
            copy = e.copies[number]
            if copy.corner[0] == 0:
                loops[copy.buffer] += 1
            if copy.buffer != Q and not plan.kind.persistent:
                assert loops[copy.buffer] == copy.corner[1] // Bc + 1
            names[number] = copy.buffer, loops[copy.buffer]
            for unit in range(copy.start // 16, (copy.start + copy.nbytes) // 16):
                at[unit] = names[number]
            found.append((ISSUE, *names[number]))
        elif kind == Kind.COPIED:
            found.append((ARRIVED, *names[number]))
        elif kind == Kind.PRODUCT:
            product = e.products[number]
            read = {at[byte // 16] for byte in (product.b[0], product.b[1] - 1)}
            ((what, tile),) = read
            assert what == (V if product.a is None else K)
            found.append((MULTIPLY, O if product.a is None else S, tile))
    assert Br >= 64
    kinds = (ISSUE, ARRIVED, MULTIPLY)
    slots = [(s.kind, what, t) for s in plan.order if s.kind in kinds for what, t in s.tiles.items()]
    whole = list(dict.fromkeys(found))
    assert list(dict.fromkeys(slots)) == whole[: len(dict.fromkeys(slots))]


def assert_lives(plan):
    """Checks that each tile is copied, arrives, is multiplied and freed, in this order, and so are its weights."""
    first = {}
    for n, slot in enumerate(plan.order):
        for what, tile in slot.tiles.items():
            first.setdefault((slot.kind, what, tile), n)
    tiles = sum(run for run, _ in plan.loops)
    for tile in range(1, tiles + 1):
        order = [(ISSUE, K), (ARRIVED, K), (MULTIPLY, S), (SOFTMAX, P), (MULTIPLY, O)]
        steps = [first[kind, what, tile] for kind, what in order]
        assert steps == sorted(set(steps))
        assert first[ISSUE, V, tile] < first[ARRIVED, V, tile] < first[MULTIPLY, O, tile]
        if tile + plan.ring.stages <= tiles:
            for what in (K, V):
                assert first[FREE, what, tile] < first[ISSUE, what, tile + plan.ring.stages]


@every_rung
@pytest.mark.parametrize("causal", [0, 1])
def test_the_slots_are_what_the_emulator_executed(rung, causal):
    plan = plan_at(rung, SHAPE.with_(causal=causal))
    assert_events(plan)
    assert_lives(plan)
    assert sum(slot.kind == STORE for slot in plan.order) >= plan.shown


@settings(max_examples=4, deadline=None)
@given(N=st.integers(1, 300), d=st.integers(1, 16).map(lambda n: 8 * n), causal=st.integers(0, 1),
       rung=st.sampled_from([*RINGS]))  # fmt: skip
def test_any_shape_has_its_scene(N, d, causal, rung):
    plan = plan_at(rung, AttentionShape(1, 1, N, d, causal=causal, dtype="bf16"))
    assert_events(plan)
    assert_lives(plan)
    assert_pictured(plan)


def assert_pictured(plan):
    """Checks the cells of stages and products against the slots, and the captions' length."""
    of = RingScene(plan)
    scene = of.scene()
    payload(scene)
    for n, slot in enumerate(of.slots):
        if slot.kind == FOLDED:
            continue
        for what in (Q, K, V):
            name = f"stages_{what}"
            cells = scene.cells(name, n).reshape(-1, scene.steps)
            held = {stage: tile for (of_, stage), (_, tile) in slot.stages.items() if of_ == what}
            assert {k: int(v) for k, v in enumerate(cells[:, n]) if not np.isnan(v)} == held
            assert np.isnan(cells[:, n + 1 :]).all()
        assert {state for state, _ in slot.stages.values()} <= set(STATES)
        assert len(scene.caption(n).split()) <= MAX_WORDS, scene.caption(n)


@every_rung
def test_the_picture_shows_the_slots(rung):
    assert_pictured(plan_at(rung))
    assert "order, not duration" in ring_scene(SHAPE, rung, {}).order_note


def test_each_rung_shows_its_idea():
    slots = {rung.rpartition("/")[2]: plan_at(rung).order for rung in RINGS}
    turns = {
        rung: any(w.on == ON_TURN for slot in of for w in slot.waits.values()) for rung, of in slots.items()
    }
    assert turns == dict.fromkeys(slots, True) | {"wgmma": False, "wgmma-consumers": False}
    during = {rung: any(s.kind == SOFTMAX and s.running for s in of) for rung, of in slots.items()}
    assert during == dict.fromkeys(slots, False) | dict.fromkeys(
        ("wgmma-overlap", "wgmma-balanced", "wgmma-persistent"), True
    )


def whole_run(plan):
    """Returns the slots of a run of all tiles, folded."""
    full = RingPlan(plan.s, plan.rung, plan.tiles)
    full.__dict__["run"] = plan.count
    return folded(full.order, full.ring, full.loops, plan.tail)


@every_rung
def test_a_long_loop_is_folded_as_a_whole_run_shows(rung):
    plan = plan_at(rung, SHAPE.with_(N=64 * 13))
    assert plan.run < plan.count
    assert whole_run(plan) == plan.slots


@pytest.mark.parametrize("rung", ["attention/wgmma-balanced", "attention/wgmma-persistent"])
def test_a_pair_of_causal_loops_has_the_steps_of_a_whole_run(rung):
    """Each warpgroup takes them in its order. Which one is first can differ, as the note says."""
    plan = plan_at(rung, SHAPE.with_(N=64 * 13, causal=1))
    assert plan.run < plan.count and "Which one is first" in ring_scene(plan.s, rung, plan.tiles).order_note
    assert steps_of(whole_run(plan)) == steps_of(plan.slots)


def steps_of(slots):
    """Returns the tiles of each kind of step and operand, in order."""
    found = {}
    for slot in slots:
        for what, tile in slot.tiles.items():
            if slot.kind in (ISSUE, MULTIPLY, SOFTMAX):
                found.setdefault((slot.kind, what), {})[tile] = None
    return {key: list(tiles) for key, tiles in found.items()}
