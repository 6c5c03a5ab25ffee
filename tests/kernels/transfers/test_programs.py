"""Transfer programs: what they compute in any order that they allow, what they note, their memory, their rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.model.program import RuleError
from kernels.transfers import programs, scenarios
from kernels.transfers.gpu import FILE, Gpu, Host, HostArray, Stream
from kernels.transfers.operations import (
    ALLOCATE,
    COPY_IN,
    COPY_OUT,
    FREE,
    GRAPH,
    LAUNCH,
    RECORD,
    WAIT,
    Ledger,
    memory_after,
)
from kernels.transfers.scenarios import SCENARIOS, Settings, operations
from tests.helpers.lazy_gpu import Lazy
from tests.helpers.offenders import every

ROWS = 12


def empty(shape, pinned):
    return HostArray(np.empty(shape, np.float32), pinned)


def executed(s: Settings, backend) -> tuple[float, tuple]:
    """Returns the error of a scenario on a backend, and its operations."""
    gpu = Gpu(backend)
    arrays = scenarios.arrays(gpu, s, empty)
    arrays.reset(gpu)
    ops = scenarios.run(gpu, s, arrays.args)
    return arrays.check(), ops


def usual(key: str, rows: int = ROWS) -> Settings:
    return Settings(key, rows, min(SCENARIOS[key].default_n, 4))


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Gives the batches 16 columns: the numbers of 2,048 columns take seconds."""
    monkeypatch.setattr(scenarios, "WIDTH", 16)
    operations.cache_clear()
    yield
    operations.cache_clear()


@every("key", SCENARIOS)
def test_a_program_computes_its_result_and_notes_the_same_without_executing(key):
    error, ops = executed(usual(key), Host())
    assert error <= scenarios.TOLERANCE
    assert ops == operations(usual(key))


@every("key", SCENARIOS)
def test_a_program_is_right_in_every_order_that_it_allows(key):
    for seed in range(5):
        assert executed(usual(key), Lazy(seed))[0] <= scenarios.TOLERANCE


@pytest.mark.parametrize("key", ["pieces", "prefetch"])
def test_without_its_waits_a_program_is_wrong(key, monkeypatch):
    monkeypatch.setattr(Stream, "wait_event", lambda self, event: None)
    wrong = 0
    for seed in range(10):
        try:
            executed(Settings(key, ROWS, 4), Lazy(seed))
        except RuntimeError:
            wrong += 1
    assert wrong


@given(rows=st.integers(1, 40), n=st.integers(1, 40), seed=st.integers(0, 3))
@settings(deadline=None, max_examples=25)
def test_pieces_of_any_number_give_the_whole_batch(rows, n, seed):
    if n > rows:
        with pytest.raises(RuleError, match="pieces"):
            Settings("pieces", rows, n)
        return
    error, ops = executed(Settings("pieces", rows, n), Lazy(seed))
    assert error <= scenarios.TOLERANCE
    copied = [op for op in ops if op.kind in (COPY_IN, COPY_OUT)]
    assert sum(op.nbytes for op in copied) == 2 * 4 * rows * 16
    assert sum(op.kind == LAUNCH for op in ops) == n


@given(rows=st.integers(1, 5000), n=st.integers(1, 5000))
def test_a_cut_covers_all_rows_once(rows, n):
    if n > rows:
        with pytest.raises(RuleError, match=f"got {n}"):
            Gpu.cut(rows, n)
        return
    parts = Gpu.cut(rows, n)
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop, len(parts)) == (0, rows, n)
    assert max(p.stop - p.start for p in parts) - min(p.stop - p.start for p in parts) <= 1


def test_a_wait_names_the_record_that_it_waits_for():
    ops = operations(Settings("pieces", 8, 2))
    waits = [op for op in ops if op.kind == WAIT]
    assert waits and all(ops[at].kind == RECORD for op in waits for at in op.waits)
    assert {(op.stream, ops[op.waits[0]].stream) for op in waits} == {("compute", "load"), ("store", "compute")}


def test_a_graph_is_one_operation_of_all_its_launches():
    (graph,) = [op for op in operations(usual("graph")) if op.kind == GRAPH]
    assert graph.launches == 4 and not [op for op in operations(usual("graph")) if op.kind == LAUNCH]
    assert len([op for op in operations(usual("launches")) if op.kind == LAUNCH]) == 4


@every("key", SCENARIOS)
def test_every_operation_names_its_line_of_the_program(key):
    text, first = SCENARIOS[key].source()
    lines = FILE.read_text("utf-8").splitlines()
    assert lines[first - 1 : first + text.count("\n")] == text.splitlines()
    words = {
        ALLOCATE: ("empty(", "malloc(", "managed("),
        COPY_IN: (".set(",),
        COPY_OUT: (".get(",),
        FREE: ("del ",),
        RECORD: (".record()",),
    }
    for op in operations(usual(key)):
        assert first < op.line <= first + text.count("\n")
        assert any(word in lines[op.line - 1] for word in words.get(op.kind, ("",))), (op, lines[op.line - 1])


# -- memory ------------------------------------------------------------------------------------------
def test_a_leak_grows_by_one_result_a_step_and_its_log_names_the_line():
    ops, fixed = operations(usual("leak")), operations(usual("no_leak"))
    batch = 4 * ROWS * 16
    assert max(memory_after(fixed)) == 2 * batch and memory_after(fixed)[-1] == 0
    assert memory_after(ops)[-1] == usual("leak").n * batch
    ledger = Ledger()
    for op in ops:
        ledger.take(op)
    ((line, nbytes),) = ledger.by_line().items()
    assert nbytes == memory_after(ops)[-1]
    assert "d_y = gpu.empty" in FILE.read_text("utf-8").splitlines()[line - 1]


@every("key", [key for key in SCENARIOS if not key.endswith("leak")])
def test_all_memory_is_released_at_the_end(key):
    assert memory_after(operations(usual(key)))[-1:] == [0]


# -- rules -------------------------------------------------------------------------------------------
@every(
    ("values", "words"),
    [
        (("teleport", 8, 1), "no scenario teleport"),
        (("pinned", 0, 1), "rows must be 1 to"),
        (("pinned", 1 << 30, 1), "rows must be 1 to"),
        (("pieces", 4, 5), "4 rows can be cut into 1 to 4 pieces, got 5"),
        (("launches", 8, 1000), "n must be 1 to 64"),
        (("pinned", 8.5, 1), "rows must be 1 to"),
    ],
)
def test_a_broken_rule_is_named(values, words):
    with pytest.raises(RuleError, match=words):
        Settings(*values)


def test_arrays_beyond_memory_are_refused_with_both_numbers():
    s = Settings("pinned", 1000, 1)
    s.check_memory(10**9, 10**9)
    with pytest.raises(RuleError, match="this machine, 1,000 bytes are free"):
        s.check_memory(1000, 10**9)
    with pytest.raises(RuleError, match="the GPU, 1,000 bytes are free"):
        s.check_memory(10**9, 1000)
    assert s.device_bytes == 2 * 4 * 1000 * 16 + 4 * 16 * 16


def test_a_copy_between_different_shapes_is_refused():
    gpu = Gpu(Host())
    with pytest.raises(RuleError, match="equal shapes"):
        gpu.empty((4, 4)).set(empty((4, 5), True))


def test_a_wrong_result_is_found():
    s = usual("pinned")
    gpu = Gpu(Host())
    arrays = scenarios.arrays(gpu, s, empty)
    scenarios.run(gpu, s, arrays.args)
    arrays.out.array[-1, -1] += 1e-2
    with pytest.raises(RuntimeError, match="off by"):
        arrays.check()
    arrays.out.array[0, 0] = np.nan
    with pytest.raises(RuntimeError, match="not finite"):
        arrays.check()


def test_every_program_has_a_scenario():
    functions = {f for f in vars(programs).values() if callable(f)}
    assert functions == {s.program for s in SCENARIOS.values()}
    assert {s.rival for s in SCENARIOS.values()} <= {"", *SCENARIOS}
