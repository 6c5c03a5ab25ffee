"""The events of bulk copies, mbarriers and wgmma in a trace: complete, in the order of execution, without cost if there is no trace."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines import emulator
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.events import NONE, Kind
from kernels.engines.emulator.launch import Options
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.program import INPUT
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.hopper import LOAD_96_BYTES, run_hopper
from tests.kernels.gemm.test_hopper import emulated

SMALL = {"BM": 64, "BN": 64, "STAGES": 2}
TILE = 2 * 64 * 64  # bytes of a tile of A or of B


def run(rung, s, tiles, trace=True):
    """Returns (trace, counters) of block 0."""
    found = find(rung)
    program = found.build(s, found.check(s, found.default_tiles | tiles))
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role(INPUT)}
    session = emulator.Session(program, zeros, Options(trace_block=0 if trace else None, trace_values=False))
    session.verify_run()
    return session.trace and session.trace[0], session.counters


def rows(events, *kinds):
    """Returns the numbers of the events of some kinds."""
    return [n for n in range(len(events)) if events.kind[n] in kinds]


def test_one_tile_event_by_event():
    e = run("gemm/wgmma-ring", GemmShape(64, 64, 64, dtype="fp16"), SMALL)[0].events
    kinds = [Kind(kind).name for kind in e.kind]
    assert kinds == [
        "WAIT",
        "PASS",
        "EXPECT",
        "ARRIVE",
        "COPY",
        "COPY",
        "WAIT",
        "COPIED",
        "COPIED",
        "PHASE",
        "PASS",
        *["PRODUCT"] * 4,
        "CLOSE_PRODUCTS",
        "WAIT_PRODUCTS",
        "WAIT_PRODUCTS",
    ]
    full = 2 * 2 * TILE  # the barriers are after two stages
    assert e.barrier[[0, 2, 3, 6, 9, 10]].tolist() == [full + 16, full, full, full, full, full]
    assert set(e.barrier[[4, 5, 7, 8, 11]].tolist()) == {NONE}
    assert e.number[[0, 2, 3, 6, 9]].tolist() == [1, 2 * TILE, 1, 0, 0]
    assert e.number[-2:].tolist() == [1, 0]  # groups of products that may still run
    # The producer's first warp is the fifth of the block, the consumer has the first four; the copy engine has none.
    assert e.warps[[0, 4, 6, 8, 11]].tolist() == [0b10000, 0b10000, 0b1111, 0, 0b1111]
    a, b = e.copies
    assert (a.buffer, a.corner, a.box, a.start, a.nbytes, a.barrier) == ("A", (0, 0), (64, 64), 0, TILE, full)
    assert (b.buffer, b.start, b.block, b.blocks, b.load) == ("B", TILE, 0, (0,), True)
    first, second = e.products[:2]
    assert (first.a, first.b, first.columns, first.depth) == ((0, TILE), (TILE, TILE + 2048), 64, 16)
    assert (second.a, second.b) == ((32, TILE - 32), (TILE + 2048, TILE + 4096))
    lines = [e.lines[line].number for line in e.line]
    assert lines[4] != lines[5] and lines[7:9] == lines[4:6]  # a copy ends at the line that began it


@pytest.mark.parametrize(
    "rung, tiles",
    [
        ("gemm/wgmma", {"BM": 64, "BN": 64}),
        ("gemm/wgmma-ring", SMALL),
        ("gemm/wgmma-store", {}),
        ("gemm/wgmma-cluster", {}),
    ],
)
def test_events_are_as_many_as_the_counters_count(rung, tiles):
    blocks = 2 if rung == "gemm/wgmma-cluster" else 1
    default = find(rung).default_tiles | tiles
    s = GemmShape(blocks * default["BM"], default["BN"], 320, dtype="fp16")
    trace, counters = run(rung, s, tiles)
    e = trace.events
    copied = [e.copies[n] for n in e.number[rows(e, Kind.COPY)]]
    for op, load in (("ld", True), ("st", False)):
        assert sum(c.nbytes for c in copied if c.load == load) == counters.total[f"bulk_bytes_{op}"]
    products = [e.products[n] for n in e.number[rows(e, Kind.PRODUCT)]]
    assert sum(2 * 64 * p.columns * p.depth for p in products) == counters.total["flops_mma"] == s.flops
    assert set(e.block.tolist()) == set(range(blocks))
    loads = [c for c in copied if c.load]
    expected = sum(e.number[rows(e, Kind.EXPECT)].tolist())
    assert expected == sum(c.nbytes * len(c.blocks) for c in loads)


@pytest.mark.parametrize("rung, tiles", [("gemm/wgmma-ring", SMALL), ("gemm/wgmma-cluster", {})])
def test_events_follow_their_causes(rung, tiles):
    blocks = 2 if rung == "gemm/wgmma-cluster" else 1
    e = run(rung, GemmShape(128 * blocks, 64, 320, dtype="fp16"), tiles)[0].events
    begun, waiting, expected = set(), set(), {}
    phases: dict[tuple[int, int], int] = {}
    for n in range(len(e)):
        kind, number, at = Kind(e.kind[n]), int(e.number[n]), (int(e.barrier_block[n]), int(e.barrier[n]))
        # Lanes of a warp may wait at different barriers.
        warps = {(int(e.block[n]), w, at) for w in range(12) if int(e.warps[n]) >> w & 1}
        if kind == Kind.COPY:
            begun |= {(number, block) for block in e.copies[number].blocks}
        elif kind == Kind.COPIED:
            begun.remove((number, int(e.block[n])))
            if e.copies[number].load:
                expected[e.block[n], e.copies[number].barrier] -= e.copies[number].nbytes
        elif kind == Kind.EXPECT:
            expected[at] = expected.get(at, 0) + number
        elif kind == Kind.PHASE:
            assert number == phases.get(at, 0) % 2 and not expected.get(at, 0)
            phases[at] = phases.get(at, 0) + 1
        elif kind == Kind.WAIT:
            # The lanes of a warp may come to the barrier of the cluster one after the other, and pass it together.
            assert at == (NONE, NONE) or not warps & waiting
            waiting |= warps
        elif kind == Kind.PASS:
            assert warps <= waiting
            waiting -= warps
            if at != (NONE, NONE):  # the phase that was awaited has ended
                assert (phases.get(at, 0) - 1) % 2 == number
    assert not begun and not waiting and not any(expected.values())


def test_a_multicast_arrives_in_both_blocks_and_consumers_arrive_at_both():
    e = run("gemm/wgmma-cluster", GemmShape(256, 256, 384, dtype="fp16"), {})[0].events
    both = [n for n, copy in enumerate(e.copies) if copy.blocks == (0, 1)]
    assert {e.copies[n].buffer for n in both} == {"B"} and {e.copies[n].block for n in both} == {0, 1}
    for n in both:
        ends = [k for k in rows(e, Kind.COPIED) if e.number[k] == n]
        assert sorted(e.block[ends].tolist()) == [0, 1]
    remote = [n for n in rows(e, Kind.ARRIVE) if e.barrier[n] != NONE and e.block[n] != e.barrier_block[n]]
    assert remote and set(e.number[remote].tolist()) == {2}  # two consumers of a block, in one instruction


@pytest.mark.parametrize(
    "rung, tiles",
    [("gemm/wgmma-ring", SMALL), ("gemm/wgmma-cluster", {}), ("gemm/mma-sync", {}), ("gemm/double-buffer", {})],
)
def test_a_trace_changes_no_counter(rung, tiles):
    s = GemmShape(256, 128, 192, dtype="fp32" if rung == "gemm/double-buffer" else "fp16")
    (trace, traced), (none, counted) = run(rung, s, tiles), run(rung, s, tiles, trace=False)
    assert none is None and len(trace.events) == 0 if "wgmma" not in rung else len(trace.events)
    assert traced.total == counted.total and traced.lines == counted.lines


@needs_nvrtc
def test_copies_of_a_later_barrier_are_not_done_early():
    """A kernel that waits only for its first tile reads the second one before its copy is done."""
    wait = "wait(full + stage, parity);"
    with pytest.raises(EmulatorError, match="before the copy that writes it was waited for"):
        emulated(
            "wgmma-ring",
            GemmShape(64, 64, 128, dtype="fp16"),
            change=lambda text: text.replace(wait, f"if (k_tile == 0) {wait}"),
        )


@needs_nvrtc
def test_copies_of_adjacent_bytes_have_their_bytes():
    body = (
        LOAD_96_BYTES
        + """  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
      :: "l"(y + 32), "r"(shared_address(s + 16)), "r"(64) : "memory");
    close_stores(); wait_stores_read<0>();
  }"""
    )
    outcome = run_hopper(
        body,
        {"char* y": "y", "const char* x": "x"},
        {"x": np.arange(128, dtype=np.uint8)},
        {"y": (96, np.uint8)},
        shared=128,
        trace_block=0,
    )
    e = outcome.trace.events
    load, store = e.copies
    assert (load.buffer, load.load, load.corner, load.box, load.nbytes) == ("x", True, (16,), (96,), 96)
    assert (store.buffer, store.load, store.corner, store.box, store.barrier) == ("y", False, (32,), (64,), NONE)
    assert store.start - load.start == 16
    kinds = (Kind.COPY, Kind.COPIED, Kind.CLOSE_COPIES, Kind.WAIT_COPIES)
    found = [(Kind(e.kind[n]).name, int(e.number[n])) for n in rows(e, *kinds)]
    assert found == [("COPY", 0), ("COPIED", 0), ("COPY", 1), ("CLOSE_COPIES", 0), ("COPIED", 1), ("WAIT_COPIES", 0)]
