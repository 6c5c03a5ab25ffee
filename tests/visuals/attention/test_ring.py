"""Rings of attention on Hopper: every column is what the emulator executed, in this order."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.attention.shape import AttentionShape
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.events import Kind
from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.ladders import find
from kernels.model.program import INPUT, OUTPUT
from tests.helpers.emulated import needs_nvrtc
from visuals.attention.ring import RingScene, ring_scene
from visuals.attention.ring_order import ON_TOKEN, SOFTMAX, K, O, P, Q, S, V, folded, ring_order
from visuals.attention.ring_plan import RINGS, RingPlan
from visuals.scene.payload import payload
from visuals.scene.ring import ARRIVED, FOLDED, FREE, ISSUE, MULTIPLY, STATES, STORE

SMALL = {"Br": 128, "Bc": 64, "STAGES": 2}
SHAPE = AttentionShape(1, 1, 256, 64, dtype="fp16")
PING_PONG = "attention/wgmma-ping-pong"
MAX_WORDS = 36
every_rung = pytest.mark.parametrize("rung", RINGS)


@cache
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
def test_the_slots_are_what_the_emulator_executed_and_the_picture_shows_them(rung, causal):
    plan = plan_at(rung, SHAPE.with_(causal=causal))
    assert_events(plan)
    assert_lives(plan)
    assert sum(slot.kind == STORE for slot in plan.order) >= plan.shown
    assert_pictured(plan)


@settings(max_examples=3)
@given(
    N=st.integers(1, 300),
    d=st.integers(1, 16).map(lambda n: 8 * n),
    causal=st.integers(0, 1),
    rung=st.sampled_from([*RINGS]),
)
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
    assert "order, not duration" in scene.order_note


def test_each_rung_shows_its_idea():
    plans = {rung.rpartition("/")[2]: plan_at(rung) for rung in RINGS}
    weighing = {rung: [s for s in plan.order if s.kind == SOFTMAX] for rung, plan in plans.items()}
    rungs = dict.fromkeys(plans, False)
    own = {rung: any(who in s.doers for s in of for who, _ in s.running) for rung, of in weighing.items()}
    assert own == rungs | dict.fromkeys(("wgmma-overlap", "wgmma-balanced", "wgmma-persistent"), True)
    other = {rung: any(who not in s.doers for s in of for who, _ in s.running) for rung, of in weighing.items()}
    assert other == rungs | {rung: plan.kind.passes_token for rung, plan in plans.items()}


@pytest.mark.parametrize("rung", [rung for rung, kind in RINGS.items() if kind.passes_token])
def test_two_consumers_alternate(rung):
    """From the second tile on, each computes softmax while products of the other are under way, one after the other."""
    weighing = [s for s in plan_at(rung, SHAPE.with_(N=512)).slots if s.kind == SOFTMAX]
    assert [s.doers[0][1] for s in weighing] == [0, 1] * (len(weighing) // 2)
    for slot in weighing[:-1]:
        ((_, group),) = slot.doers
        assert 1 - group in {other for (_, other), _ in slot.running}


def test_more_consumers_wait_for_their_turn_and_compute_softmax_at_one_step():
    slots = RingPlan(SHAPE, PING_PONG, find(PING_PONG).default_tiles).order
    assert {len(s.doers) for s in slots if s.kind == SOFTMAX} == {4}
    assert any(wait.on == ON_TOKEN for s in slots for wait in s.waits.values())
    assert "softmax at the same step" in ring_scene(SHAPE, PING_PONG, {}).order_note
    assert "one warpgroup" in ring_scene(SHAPE, PING_PONG, SMALL).order_note


def whole_run(plan):
    """Returns the slots of a run of all tiles, folded."""
    full = RingPlan(plan.s, plan.rung, plan.tiles)
    full.__dict__["run"] = plan.count
    return folded(full.order, full.ring, full.loops, plan.tail)


@pytest.mark.parametrize("rung", ["attention/wgmma", PING_PONG, "attention/wgmma-persistent"])
def test_a_long_loop_is_folded_as_a_whole_run_shows(rung):
    plan = plan_at(rung, SHAPE.with_(N=64 * 11))
    assert plan.run < plan.count
    assert whole_run(plan) == plan.slots


def test_a_pair_of_causal_loops_has_the_steps_of_a_whole_run():
    """Each warpgroup takes them in its order. Which one is first can differ, as the note says."""
    plan = plan_at("attention/wgmma-persistent", SHAPE.with_(N=64 * 11, causal=1))
    assert plan.run < plan.count and "Which one is first" in RingScene(plan).scene().order_note
    assert steps_of(whole_run(plan)) == steps_of(plan.slots)


def steps_of(slots):
    """Returns the tiles of each kind of step and operand, in order."""
    found = {}
    for slot in slots:
        for what, tile in slot.tiles.items():
            if slot.kind in (ISSUE, MULTIPLY, SOFTMAX):
                found.setdefault((slot.kind, what), {})[tile] = None
    return {key: list(tiles) for key, tiles in found.items()}


# -- other kernels ----------------------------------------------------------------------------------


def changed(*changes, rung=PING_PONG):
    """Returns the plan of a rung, and the trace of its block with the kernel's source changed."""

    def change(text):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return text

    plan = plan_at(rung)
    (step,) = plan.program.steps
    file = step.source.rpartition("/")[2]
    text = change(sources.translation_unit(step.source))
    ptx = compile.compile_ptx(text, file, precompiled.options(step.defines, step.source))
    inputs = {b.name: np.zeros(b.shape, b.dtype) for b in plan.program.of_role(INPUT)}
    outputs = {b.name: np.zeros(b.shape, b.dtype) for b in plan.program.of_role(OUTPUT)}
    memory = device_memory(inputs | outputs, list(inputs))
    options = Options(trace_block=0, trace_values=False)
    return plan, launch(ptx, step.entry, step.grid, step.block, step.args, memory, step.shared, options).trace


@needs_nvrtc
def test_a_copy_to_another_stage_than_its_barrier_is_refused():
    """Products that read it there are right, so only the scene finds it."""
    plan, trace = changed(
        *(
            (f"{begin}tile_v + {stage} * TILE_K", f"{begin}tile_v + ({stage} ^ 1) * TILE_K")
            for begin, stage in (
                ("load_tile<Bc>(", "stage"),
                ("begin_values(o, p, ", "last"),
                ("begin_values(o, p, ", "stage"),
            )
        )
    )
    with pytest.raises(ValueError, match="reported to the barrier of another stage"):
        ring_order(trace, plan.ring)


@needs_nvrtc
def test_a_product_with_the_tile_of_another_stage_is_another_picture():
    """The rounds of both stages change places: tile 2 of V is multiplied before tile 1."""
    plan, trace = changed(
        ("begin_values(o, p, tile_v + last * TILE_K);", "begin_values(o, p, tile_v + stage * TILE_K);"),
        ("wait(full_v + last, last_parity);", "wait(full_v + last, last_parity), wait(full_v + stage, parity);"),
    )
    multiplied = [s.tiles[O] for s in ring_order(trace, plan.ring) if s.kind == MULTIPLY and O in s.tiles]
    own = [s.tiles[O] for s in plan.order if s.kind == MULTIPLY and O in s.tiles]
    assert own == sorted(own) and multiplied != own


@needs_nvrtc
def test_without_turns_all_consumers_begin_at_one_step():
    plan, trace = changed(
        ("    wait_turn(warpgroup);\n", ""),
        ("  wait_turn(warpgroup);\n", ""),
        ("    pass_turn(warpgroup);\n", ""),
        ("  pass_turn(warpgroup);\n", ""),
        (" pass_turn(warpgroup);  // to 0", ";"),
        (" wait_turn(0);", ";"),
    )
    ring = replace(plan.ring, alternates=False)
    doers = {len(slot.doers) for slot in ring_order(trace, ring) if slot.kind == MULTIPLY}
    assert doers == {2} and {len(slot.doers) for slot in plan.order if slot.kind == MULTIPLY} == {1}


@needs_nvrtc
def test_a_consumer_that_waits_for_each_product_shows_no_softmax_beside_one():
    plan, trace = changed(("wait_sums<1>(s);", "wait_sums<0>(s);"), rung="attention/wgmma-overlap")
    beside = [slot for slot in ring_order(trace, plan.ring) if slot.kind == SOFTMAX and slot.running]
    assert not beside and any(slot.kind == SOFTMAX and slot.running for slot in plan.order)
