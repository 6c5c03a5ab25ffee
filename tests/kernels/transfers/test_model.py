"""The predicted timeline: its order, its bounds, figures that follow by hand, and where its rates come from."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import records
from kernels.transfers import model, rates, recorded
from kernels.transfers.gpu import ADD, GEMM
from kernels.transfers.operations import COMPUTE, HOST, IN, OUT, QUEUES, Timeline
from kernels.transfers.rates import Rate, Rates
from kernels.transfers.scenarios import SCENARIOS, WIDTH, Settings, operations

COPY = {way: Rate(0.01, 1e9) for way in ("h2d_pinned", "d2h_pinned")} | {
    way: Rate(0.02, 2e8) for way in ("h2d_pageable", "d2h_pageable")
}
PER_ROW = 1e-3  # ms of the kernel


def made(**more) -> Rates:
    values = {"call_ms": 0.002, "gap_ms": 0.001} | more
    return Rates("made up", "made up", COPY, kernel_ms=lambda rung, shape: PER_ROW * shape["M"], **values)


def batch_ms(rows: int, rate: Rate) -> float:
    return rate.ms(4 * WIDTH * rows)


def test_one_after_the_other_is_the_sum_of_its_parts():
    found = model.predict(operations(Settings("pinned", 1000)), made())
    copy = batch_ms(1000, COPY["h2d_pinned"])
    assert found.total_ms == pytest.approx(2 * copy + 0.002 + 1000 * PER_ROW)
    assert found.busy[IN] == pytest.approx(copy) and found.busy[COMPUTE] == pytest.approx(1.0)
    slow = model.predict(operations(Settings("pageable", 1000)), made())
    assert slow.busy[IN] == pytest.approx(batch_ms(1000, COPY["h2d_pageable"]))


def test_pieces_overlap_up_to_the_longest_queue():
    """With n pieces of time p in each queue the total is about (n + 2) p."""
    n, rows = 16, 16_000
    found = model.predict(operations(Settings("pieces", rows, n)), made())
    part = batch_ms(rows // n, COPY["h2d_pinned"])
    assert found.total_ms == pytest.approx((n + 1) * part + rows // n * PER_ROW, rel=1e-2)
    assert found.longest < found.total_ms < 1.15 * found.longest


@given(key=st.sampled_from(list(SCENARIOS)), rows=st.integers(64, 4096), n=st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_a_queue_does_one_thing_at_a_time_and_the_total_is_no_less_than_any(key, rows, n):
    s = Settings(key, rows, n if SCENARIOS[key].n else 1)
    found = model.predict(operations(s), made(malloc_ms=0.05, free_ms=0.04, pool_ms=0.001))
    for queue in QUEUES:
        spans = sorted((x for x in found.spans if x.queue == queue), key=lambda x: x.start)
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(spans))
    assert found.total_ms >= max(found.busy.values()) - 1e-9
    assert found.total_ms == pytest.approx(max(x.end for x in found.spans))
    ops = operations(s)
    for stream in {op.stream for op in ops if op.stream}:
        own = [x for x in found.spans if ops[x.op].stream == stream and x.queue != HOST]
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(own))
    on_gpu = [x for x in found.spans if x.queue != HOST]
    for at, event in ((at, event) for at, op in enumerate(ops) for event in op.waits):
        before = [x.end for x in on_gpu if ops[x.op].stream == ops[event].stream and x.op < event]
        after = [x.start for x in on_gpu if ops[x.op].stream == ops[at].stream and x.op > at]
        assert min(after, default=1e9) >= max(before, default=0) - 1e-9


def test_prefetching_hides_the_shorter_of_copy_and_kernel():
    waiting, ahead = (model.predict(operations(Settings(key, 2000, 6)), made()) for key in ("waiting", "prefetch"))
    assert ahead.busy[IN] == pytest.approx(waiting.busy[IN])
    saved = waiting.total_ms - ahead.total_ms
    assert saved == pytest.approx(5 * min(batch_ms(2000, COPY["h2d_pinned"]), 2.0), rel=0.02)


def test_a_graph_costs_one_call_and_launches_one_each():
    r = Rates("made up", "made up", COPY, 0.006, 0.001, lambda rung, shape: 0.001)
    one, graph = (model.predict(operations(Settings(key, 8, 40)), r) for key in ("launches", "graph"))
    assert one.total_ms - graph.total_ms == pytest.approx(40 * (0.006 - 0.001))


def test_an_allocation_that_was_not_measured_takes_no_time():
    without = model.predict(operations(Settings("malloc", 8, 4)), made())
    known = model.predict(operations(Settings("malloc", 8, 4)), made(malloc_ms=0.5, free_ms=0.25))
    assert known.total_ms >= without.total_ms + 4 * 0.5
    ops = operations(Settings("malloc", 8, 4))
    assert not [x for x in without.spans if ops[x.op].kind == "allocate"]


def test_memory_is_freed_when_the_gpu_is_idle():
    ops = operations(Settings("malloc", 1000, 2))
    found = model.predict(ops, made(malloc_ms=0.001, free_ms=0.25))
    for at in (n for n, op in enumerate(ops) if op.kind == "free"):
        end = max(x.end for x in found.spans if x.op == at)
        assert end - 0.25 >= max(x.end for x in found.spans if x.op < at and x.queue != HOST) - 1e-9


def test_what_was_not_measured_is_named():
    managed, malloc = (operations(Settings(key, 8, 1)) for key in ("managed", "malloc"))
    assert model.unknown(managed, made(pool_ms=0.1)) == ("touch",)
    assert model.unknown(malloc, made()) == ("allocate", "free")
    assert model.unknown(malloc, made(malloc_ms=0.1, free_ms=0.1)) == ()


# -- rates -------------------------------------------------------------------------------------------
def test_a_rate_is_found_in_its_own_points():
    rate = Rate(0.01, 5e10)
    points = [(n, rate.ms(n)) for n in (1000, 4000, 10**6, 10**8, 10**9)]
    found = rates.rate_of(points)
    assert found.latency_ms == pytest.approx(0.01, rel=0.05) and found.bytes_per_s == pytest.approx(5e10, rel=0.05)
    assert rates.rate_of([*points, (4000, 1.0)]).latency_ms < 0.02  # one copy that was disturbed
    with pytest.raises(ValueError, match="small and large"):
        rates.rate_of(points[2:])


def test_rates_come_from_the_recordings_of_kernels():
    found = rates.from_rows(records.recordings())
    assert found.device == "NVIDIA H200" and found.malloc_ms is None
    pinned, pageable = found.copies["h2d_pinned"], found.copies["h2d_pageable"]
    rows = [r for r in records.recordings() if r.get("copies_ms") and r["input_bytes"] > 4e8]
    for row in rows[:20]:
        assert pinned.ms(row["input_bytes"]) == pytest.approx(row["copies_ms"]["h2d_pinned"], rel=0.1)
    assert pageable.bytes_per_s < pinned.bytes_per_s / 2


def test_a_kernel_takes_as_long_as_its_recording():
    shape = {"M": 4096, "N": 4096, "K": 4096}
    exact = rates.kernel_ms_of_recordings(GEMM, shape)
    found = rates.find(GEMM)
    row = records.recorded(GEMM, rates.ladder_of(GEMM).shape(**shape), found.default_tiles)
    assert exact == pytest.approx(row["median_ms"], rel=0.01)
    half = rates.kernel_ms_of_recordings(GEMM, shape | {"K": 2048})
    assert half == pytest.approx(exact / 2)
    assert 0 < rates.kernel_ms_of_recordings(ADD, {"M": 64, "N": 256}) < 0.01


def test_a_small_piece_leaves_sms_without_a_block_so_its_kernel_takes_a_whole_round():
    times = [rates.product_ms(rates.ladder_of(GEMM).shape(M=m, N=2048, K=2048)) for m in (128, 512, 1024, 2048)]
    assert times[0] == times[1] == times[2] < times[3]


@pytest.mark.parametrize("rows", [8192, 32_768])
def test_the_best_number_of_pieces_is_between_one_and_many(rows):
    best, points = model.best_pieces(rows, 64)
    totals = dict(points)
    assert 1 < best < 64 and totals[best] < 0.6 * totals[1] and totals[best] < totals[64]


def test_with_enough_rows_the_total_is_within_a_tenth_of_the_longest_queue():
    row = recorded.scenario("pieces", 32_768, 32)
    assert row["total_ms"] <= 1.1 * recorded.timeline(row).longest
    best, _ = model.best_pieces(131_072, 64)
    found = model.predicted(Settings("pieces", 131_072, best))
    assert found.total_ms <= 1.1 * found.longest


def test_predicted_totals_of_pieces_are_near_the_recorded_ones():
    for point in recorded.curve():
        found = model.predicted(Settings("pieces", 8192, point["n"]))
        assert found.total_ms == pytest.approx(point["total_ms"], rel=0.12)


def test_a_timeline_survives_json():
    found = model.predicted(Settings("pieces", 1024, 4))
    again = Timeline.from_json(json.loads(json.dumps(found.to_json())))
    assert [s.queue for s in again.spans] == [s.queue for s in found.spans]
    assert again.total_ms == pytest.approx(found.total_ms, abs=1e-5)
    assert {OUT, IN, COMPUTE} <= {s.queue for s in again.spans}


def test_a_record_replaces_the_rates_of_rows(monkeypatch):
    point = {"p20_ms": 1, "p80_ms": 1, "n": 7}
    record = {
        "device": "Some GPU",
        "date": "2026-01-02",
        "copies": {
            way: [{"bytes": 4096, "ms": 0.01, **point}, {"bytes": 10**8, "ms": 2.0, **point}] for way in rates.WAYS
        },
        "costs": {"call_ms": 0.004, "malloc_ms": 0.2, "free_ms": 0.1},
    }
    monkeypatch.setattr(recorded, "records", lambda: (record,))
    found = rates.from_record(recorded.newest())
    assert (found.device, found.call_ms, found.malloc_ms, found.pool_ms) == ("Some GPU", 0.004, 0.2, None)
    assert found.copies["h2d_pinned"].bytes_per_s == pytest.approx(5e10)
    assert "n = 7" in found.source
    assert found.gap_ms == rates.from_rows(records.recordings()).gap_ms
    del record["copies"]["d2h_pinned"]
    assert rates.from_record(record).copies["d2h_pinned"] == rates.from_rows(records.recordings()).copies["d2h_pinned"]
