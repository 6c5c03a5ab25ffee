"""Rings of stages of GEMM: every column is what the emulator executed, in this order."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator.events import NONE, Kind
from kernels.gemm.hopper import BK
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find
from tests.helpers.emulated import needs_nvrtc
from tests.kernels.gemm.test_hopper import emulated
from visuals.gemm.ring import RingScene, ring_scene
from visuals.gemm.ring_order import folded, ring_order
from visuals.gemm.ring_plan import RINGS, order_of, ring_of, shortened, trace_of, why_not
from visuals.scene.parts import ROLES
from visuals.scene.payload import payload
from visuals.scene.ring import ARRIVED, FILLING, FOLDED, FREE, FULL, ISSUE, MULTIPLY, READING, STORE, WAITS

SMALL = {"BM": 64, "BN": 64, "STAGES": 2}
MAX_WORDS = 28
CASES = [
    ("gemm/wgmma-ring", {}, GemmShape(128, 128, 384, dtype="fp16")),
    ("gemm/wgmma-ring", SMALL, GemmShape(40, 64, 296, dtype="bf16", beta=1)),
    ("gemm/wgmma-consumers", {}, GemmShape(300, 128, 320, dtype="fp16")),
    ("gemm/wgmma-persistent", {}, GemmShape(4096, 4096, 128, dtype="fp16")),
    ("gemm/wgmma-store", {}, GemmShape(4096, 4096, 192, dtype="fp16")),
    ("gemm/wgmma-cluster", {}, GemmShape(4096, 4096, 192, dtype="fp16")),
]


def sizes(rung, tiles):
    return find(rung).default_tiles | tiles


# -- what the trace says, by addresses --------------------------------------------------------------
@dataclass
class Token:
    """A run of events of one kind and tile, from event `first` on. `tile` is the one whose elements of A are copied."""

    kind: str
    tile: int
    first: int
    last: int
    doers: set = field(default_factory=set)


class Replay:
    """The tokens of a trace. Tiles follow from coordinates in A and B and from bytes of shared memory, not from counts."""

    def __init__(self, trace, rung, tiles, s):
        self.e, self.trace, self.ring, self.s = trace.events, trace, ring_of(rung, tiles), s
        self.rows = RINGS[rung].blocks * tiles["BM"]
        self.now = {}  # by block and byte in units of 16: the tile that a copy wrote there last
        self.tile_of_copy, self.tokens, self.order = {}, [], []
        self.requests = 0
        for n in range(len(self.e)):
            self.stored(int(self.e.requests[n]), n)
            self.event(n, Kind(self.e.kind[n]), int(self.e.number[n]), int(self.e.block[n]))
        self.stored(len(trace.requests), len(self.e))

    def tile(self, number):
        """Returns the tile of a copy: that of A by its coordinates; B has none along M, so it takes that of its stage."""
        copy, along = self.e.copies[number], -(-self.s.K // BK)
        if copy.buffer == "A":
            return copy.corner[1] // self.rows * along + copy.corner[0] // BK + 1
        stage = copy.start // self.ring.nbytes
        tile = next(
            t
            for n, t in reversed(self.tile_of_copy.items())
            if self.e.copies[n].start == stage * self.ring.nbytes and self.e.copies[n].block == copy.block
        )
        assert (tile - 1) % along == copy.corner[1] // BK
        return tile

    def event(self, n, kind, number, block):
        actors = {(block, w // 4) for w in range(12) if int(self.e.warps[n]) >> w & 1}
        if kind == Kind.COPY and self.e.copies[number].load:
            self.tile_of_copy[number] = self.tile(number)
            self.add(ISSUE, self.tile_of_copy[number], n, actors)
        elif kind == Kind.COPY:
            self.add(STORE, self.last(), n, actors)
        elif kind == Kind.COPIED and self.e.copies[number].load:
            copy, tile = self.e.copies[number], self.tile_of_copy[number]
            for unit in range(copy.start // 16, (copy.start + copy.nbytes) // 16):
                self.now[block, unit] = tile
            self.add(ARRIVED, tile, n, set())
        elif kind == Kind.PRODUCT:
            p = self.e.products[number]
            (tile,) = {self.now[block, byte // 16] for start, stop in (p.a, p.b) for byte in (start, stop - 1)}
            self.add(MULTIPLY, tile, n, actors)
        elif kind == Kind.ARRIVE and self.ring.empty <= int(self.e.barrier[n]):
            stage = (int(self.e.barrier[n]) - self.ring.empty) // 8
            tile = self.now[int(self.e.barrier_block[n]), stage * self.ring.nbytes // 16]
            self.add(FREE, tile, n, actors)

    def stored(self, requests, n):
        if requests > self.requests:
            warps = self.trace.requests.warp[self.requests : requests]
            self.add(STORE, self.last(), n, {(0, int(w) // 4) for w in warps})
            self.requests = requests

    def last(self):
        return max(t.tile for t in self.tokens if t.kind == MULTIPLY)

    def add(self, kind, tile, n, doers):
        if not self.tokens or (self.tokens[-1].kind, self.tokens[-1].tile) != (kind, tile):
            self.tokens.append(Token(kind, tile, n, n))
        self.tokens[-1].last = n
        self.tokens[-1].doers |= doers

    def waiting(self, n):
        """Returns the warpgroups that wait at a barrier of the ring when event n happens."""
        open_ = set()
        for k in range(min(n, len(self.e))):
            if self.e.kind[k] in (Kind.WAIT, Kind.PASS) and self.e.barrier[k] != NONE:
                actors = {(int(self.e.block[k]), w // 4) for w in range(12) if int(self.e.warps[k]) >> w & 1}
                open_ = open_ | actors if self.e.kind[k] == Kind.WAIT else open_ - actors
        return open_


def assert_proved(slots, replay):
    """Checks each slot against the tokens of the trace."""
    assert [(s.kind, s.tile) for s in slots] == [(t.kind, t.tile) for t in replay.tokens]
    for slot, token in zip(slots, replay.tokens, strict=True):
        assert set(slot.doers) == token.doers
        assert set(slot.waits) - token.doers == replay.waiting(token.first) - token.doers
        for (_, group), tile in slot.waits.items():
            before = [t for t in replay.tokens if t.first < token.first]
            kind = ISSUE if group == replay.ring.consumers else MULTIPLY
            assert tile == 1 + max([t.tile for t in before if t.kind == kind], default=0)


def assert_lives(replay, frees_last):
    """Checks that each tile is copied, arrives, is multiplied and freed, in this order, before the next tile of its
    stage."""
    tokens, stages = replay.tokens, replay.ring.stages
    count = max(t.tile for t in tokens)
    kinds = (ISSUE, ARRIVED, MULTIPLY, FREE)
    for tile in range(1, count + 1):
        own = {kind: [t for t in tokens if (t.kind, t.tile) == (kind, tile)] for kind in kinds}
        for one, other in pairwise(kinds):
            if other != FREE or own[FREE]:
                assert own[one][-1].last < own[other][0].first
        assert own[FREE] or (tile == count and not frees_last)
        if tile + stages <= count:
            again = next(t for t in tokens if (t.kind, t.tile) == (ISSUE, tile + stages))
            assert own[FREE][-1].last < again.first


@pytest.mark.parametrize(("rung", "tiles", "s"), CASES)
def test_the_slots_are_what_the_emulator_executed(rung, tiles, s):
    cut, tiles = shortened(s, rung, sizes(rung, tiles)), sizes(rung, tiles)
    trace = trace_of(cut.shape, rung, tiles)
    replay = Replay(trace, rung, tiles, cut.shape)
    slots = ring_order(trace, ring_of(rung, tiles))
    assert_proved(slots, replay)
    assert_lives(replay, RINGS[rung].persistent)
    loops = min(cut.outputs, cut.shown + 1)
    assert max(slot.tile for slot in slots) == loops * cut.run
    assert sum(slot.kind == STORE for slot in slots) == loops
    shown = order_of(cut.shape, rung, tiles, cut.last)
    assert shown == slots[: len(shown)] and sum(slot.kind == STORE for slot in shown) == cut.shown
    assert max(slot.tile for slot in shown if slot.kind == MULTIPLY) == cut.last


@needs_nvrtc
def test_another_order_of_warps_has_its_picture_too():
    rung, s = "gemm/wgmma-consumers", GemmShape(256, 128, 384, dtype="fp16")
    tiles = sizes(rung, {})
    trace = emulated("wgmma-consumers", s, tiles, order=5, trace_block=0, trace_values=False)[2].trace
    assert_proved(ring_order(trace, ring_of(rung, tiles)), Replay(trace, rung, tiles, s))


@settings(max_examples=3)
@given(
    M=st.integers(1, 64),
    N=st.integers(1, 8).map(lambda n: 8 * n),
    K=st.integers(1, 60).map(lambda n: 8 * n),
    beta=st.sampled_from([0, 1]),
)
def test_any_shape_has_its_scene(M, N, K, beta):
    s = GemmShape(M, N, K, dtype="fp16", beta=beta)
    trace = trace_of(s, "gemm/wgmma-ring", SMALL)
    replay = Replay(trace, "gemm/wgmma-ring", SMALL, s)
    slots = ring_order(trace, ring_of("gemm/wgmma-ring", SMALL))
    assert_proved(slots, replay)
    assert_lives(replay, frees_last=False)
    assert_pictured(ring_scene(s, "gemm/wgmma-ring", SMALL), "gemm/wgmma-ring", SMALL, s)


# -- the picture ------------------------------------------------------------------------------------
def assert_pictured(scene, rung, tiles, s):
    """Checks every cell of a scene against the slots, and that no later column is written."""
    of = RingScene(s, rung, tiles)
    slots, ring = of.slots, of.ring
    assert scene.steps == len(slots)
    for n, slot in enumerate(slots):
        for b in ring.blocks:
            held = (
                {}
                if slot.kind == FOLDED
                else {
                    stage: (tile, {FILLING: "input", FULL: "filter", READING: "output"}[state])
                    for (block, stage), (state, tile) in slot.stages.items()
                    if block == b
                }
            )
            assert column(scene, f"stages{b}", n) == held
            waits = {who: tile for who, tile in slot.waits.items() if who not in slot.doers}
            for name, groups in ((f"producer{b}", [ring.consumers]), (f"consumers{b}", range(ring.consumers))):
                now = column(scene, name, n)
                expected = {g: slot.tile for g in groups if (b, g) in slot.doers}
                expected |= {g: waits[b, g] for g in groups if (b, g) in waits}
                assert {g: number for g, (number, _) in now.items()} == {
                    g - ring.consumers * (name[0] == "p"): number for g, number in expected.items()
                }
                for g, (_, role) in now.items():
                    acts = (b, g + ring.consumers * (name[0] == "p")) in slot.doers
                    assert (role == WAITS) == (not acts or slot.kind == FREE)
            parity = scene.cells(f"barriers{b}", n).reshape(scene.tensor(f"barriers{b}").rows, -1)
            parity = parity if len(ring.blocks) == 1 else parity.T
            for stage in range(ring.stages):
                for k, on in enumerate(("full", "empty")):
                    assert parity[stage, k] == slot.ended[b, on, stage] % 2
    for n in range(scene.steps):
        assert len(scene.caption(n).split()) <= MAX_WORDS, scene.caption(n)


def column(scene, name, n):
    """Returns, by lane, the number and the role of each cell of a row at step n."""
    tensor = scene.tensor(name)
    now = scene.cells(name, n).reshape(tensor.rows, -1)
    assert np.isnan(now[:, n + 1 :]).all(), "a later column is written"
    roles = tensor.roles.reshape(tensor.rows, -1)
    return {k: (int(v), ROLES[roles[k, n]]) for k, v in enumerate(now[:, n]) if not np.isnan(v)}


LINES = {ISSUE: "load_box(tile_a", ARRIVED: "wait(full", MULTIPLY: "multiply(", FREE: "arrive", STORE: "store_"}


@pytest.mark.parametrize(("rung", "tiles", "s"), CASES[1:2] + CASES[4:])
def test_the_picture_shows_the_slots(rung, tiles, s):
    scene = ring_scene(s, rung, tiles)
    assert_pictured(scene, rung, sizes(rung, tiles), s)
    text = scene.source.text.splitlines()
    for n, slot in enumerate(RingScene(s, rung, sizes(rung, tiles)).slots):
        assert LINES[slot.kind] in text[int(scene.source.lines[n]) - scene.source.first]
    assert "order, not duration" in scene.order_note
    meta, _ = payload(scene)
    assert [bool(t.get("roles")) for t in meta["tensors"]] == [True, True, True, False] * RINGS[rung].blocks


def test_both_sorts_of_waits_are_seen():
    scene = ring_scene(GemmShape(64, 64, 320, dtype="fp16"), "gemm/wgmma-ring", SMALL)
    columns = [(column(scene, "producer0", n), column(scene, "consumers0", n)) for n in range(scene.steps)]
    producer = [n for n, (p, _) in enumerate(columns) if p.get(0, (0, ""))[1] == WAITS]
    consumer = [n for n, (_, c) in enumerate(columns) if c.get(0, (0, ""))[1] == WAITS]
    assert scene.caption(2).endswith("The producer waits until stage 0 is empty.")
    assert scene.caption(7).endswith("The consumer waits for tile 3.")
    assert {2, 3, 4, 5, 6} <= set(producer) and {2, 4, 7, 8} <= set(consumer)
    # The producer waits for a stage until the step in which it is freed, and fills it in the next one.
    assert "The consumer arrives at barrier empty 0: the stage is empty." in scene.caption(6)
    assert columns[7][0] == {0: (3, "input")}


def test_multicasts_are_arrows_between_two_blocks():
    scene = ring_scene(GemmShape(256, 256, 64, dtype="fp16"), "gemm/wgmma-cluster", {})
    assert [(f.source, f.target) for f in scene.flows] == [(0, 1), (1, 0)]
    for flow in scene.flows:
        assert [flow.texts[k] for k in flow.text[:2]] == [f"16.4 KB of B of tile 1 to block {flow.target}", ""]
        assert flow.active[:2].tolist() == [1, 0]
    assert len(scene.groups) == 2


# -- long loops -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rung", "tiles", "s"),
    [
        ("gemm/wgmma-ring", SMALL, GemmShape(64, 64, 13 * BK - 8, dtype="fp16")),
        ("gemm/wgmma-persistent", {}, GemmShape(4096, 2048, 11 * BK, dtype="fp16")),
    ],
)
def test_a_long_loop_is_folded_as_a_whole_run_shows(rung, tiles, s):
    tiles = sizes(rung, tiles)
    cut, ring = shortened(s, rung, tiles), ring_of(rung, tiles)
    assert cut.run <= cut.tiles == -(-s.K // BK) and (cut.tiles - cut.run) % ring.stages == 0
    short = folded(order_of(cut.shape, rung, tiles, cut.last), ring, cut.tiles, cut.run)
    whole = order_of(cut.shape.with_(K=s.K), rung, tiles, cut.shown * cut.tiles)
    at, folds = 0, 0
    for slot in short:
        if slot.kind != FOLDED:
            assert slot == whole[at]
            at += 1
            continue
        first, last = slot.folded
        assert whole[at].kind == ARRIVED and whole[at].tile == first
        stop = next(n for n in range(at, len(whole)) if whole[n].kind == ARRIVED and whole[n].tile == last + 1)
        each, rest = divmod(stop - at, last - first + 1)
        assert not rest
        for one, other in pairwise(range(at, stop + 1, each)):
            for a, b in zip(whole[one : one + each], whole[other : min(other + each, stop)], strict=False):
                assert (a.kind, a.tile + 1, a.line, a.doers) == (b.kind, b.tile, b.line, b.doers)
        assert (slot.stages, slot.ended) == (whole[stop - 1].stages, whole[stop - 1].ended)
        at, folds = stop, folds + 1
    assert at == len(whole) and folds == cut.shown
    scene = ring_scene(s, rung, tiles)
    assert (f"{cut.run} of the {cut.tiles} tiles" in scene.order_note) == (cut.run < cut.tiles)
    assert_pictured(scene, rung, tiles, s)


# -- other kernels ----------------------------------------------------------------------------------
RING = GemmShape(64, 64, 320, dtype="fp16")


def changed(*changes):
    """Returns the trace of the ring with its source changed."""

    def change(text):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return text

    return emulated("wgmma-ring", RING, SMALL, change=change, trace_block=0, trace_values=False)[2].trace


@needs_nvrtc
def test_another_kernel_has_another_picture():
    """If a consumer waits for its own products, it frees a stage at once: no step is between them."""
    ring = ring_of("gemm/wgmma-ring", SMALL)
    own = order_of(RING, "gemm/wgmma-ring", SMALL)
    other = ring_order(
        changed(
            ("wait_products<1>();", "wait_products<0>();"),
            (" && k_tile > 0) arrive(empty + last)", ") arrive(empty + stage)"),
        ),
        ring,
    )
    free = [n for n, slot in enumerate(other) if slot.kind == FREE]
    assert [(other[n - 1].kind, other[n - 1].tile) for n in free] == [(MULTIPLY, other[n].tile) for n in free]
    assert len(free) == 5
    assert [(s.kind, s.tile) for s in own] != [(s.kind, s.tile) for s in other]


@needs_nvrtc
def test_copies_to_another_stage_than_their_barrier_are_refused():
    swapped = changed(("Half* tile_a = tiles + stage * STAGE;", "Half* tile_a = tiles + (stage ^ 1) * STAGE;"))
    with pytest.raises(ValueError, match="reported to the barrier of another stage"):
        ring_order(swapped, ring_of("gemm/wgmma-ring", SMALL))


# -- reasons ----------------------------------------------------------------------------------------
def test_other_rungs_and_broken_rules_have_a_reason():
    s = GemmShape(64, 64, 64, dtype="fp16")
    for rung in LADDERS["gemm"].rungs:
        if rung.name == "gemm/wgmma-turns":
            assert why_not(s, rung.name, {}).endswith("Here they take turns.")
        elif rung.name not in RINGS:
            assert why_not(s, rung.name, {}) == f"{rung.title} has no ring of stages."
    for rung in RINGS:
        assert not why_not(s, rung, find(rung).default_tiles)
        assert "dtype must be fp16 or bf16" in why_not(s.with_(dtype="fp32"), rung, find(rung).default_tiles)
        with pytest.raises(ValueError, match="dtype must be fp16"):
            ring_scene(s.with_(dtype="fp32"), rung, {})
