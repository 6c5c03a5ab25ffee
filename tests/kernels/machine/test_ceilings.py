"""What a device does at most, and memory as a program goes on: the arithmetic behind each figure, and its faults."""

from __future__ import annotations

import datetime
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import ladder as conv_ladder
from kernels.conv.shape import ConvShape
from kernels.engines import cpu
from kernels.engines.cpu import probes as cpu_probes
from kernels.engines.cuda import timing as cuda_timing
from kernels.engines.protocol import AHEAD, ALLOCATED
from kernels.machine import ceilings, processor
from kernels.machine.ceilings import Ceilings
from kernels.machine.processor import device_name
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, LibraryCall, Program, RuleError
from kernels.records import availability
from kernels.runner import run, seeded_inputs
from tests.helpers.shapes import conv_shapes

FOUR = Budget(samples=4, seconds=1e9, warm_up_s=0)
QUICK = Budget(samples=3, seconds=0.1, least=1, warm_up_s=0)


def taking(*ms):
    left = iter(ms)
    return lambda: next(left)


# -- ceilings ------------------------------------------------------------------------------------
def test_a_rate_is_the_best_of_its_samples_and_a_launch_their_median():
    assert ceilings.best(6e9, taking(4.0, 2.0, 3.0, 8.0), FOUR) == (3e12, 4)  # 6 GB in 2 ms
    assert ceilings.median(taking(4.0, 2.0, 3.0, 8.0), FOUR) == (3.5, 4)


def test_a_row_of_ceilings_keeps_five_digits_and_the_day():
    told = Ceilings(
        4.2812345e12, 20, "copy", 65.123456e12, 20, "FMA", 1.234567, 20, "empty", 2**25, "a GPU"
    ).to_row()
    assert told["copy_bytes_per_s"] == 4.2812e12 and told["fp32_flops_per_s"] == 6.5123e13
    assert told["launch_us"] == 1.2346 and told["copy_n"] == 20 and told["cache_bytes"] == 2**25
    assert told["date"] == datetime.datetime.now(datetime.UTC).date().isoformat()
    assert "launch_host_us" not in told and "launch_sync_us" not in told


@given(
    rounds=st.integers(0, 300),
    a=st.floats(0.5, 0.9999),
    b=st.floats(-1, 1),
    start=st.lists(st.integers(0, 1023), min_size=1, max_size=5),
)
def test_the_closed_form_is_what_the_kernel_does(rounds, a, b, start):
    start = np.array(start)
    chains = np.arange(ceilings.FMA_CHAINS)[:, None] + start.astype(np.float64)
    for _ in range(rounds):
        chains = float(np.float32(a)) * chains + float(np.float32(b))
    np.testing.assert_allclose(
        ceilings.fma_sum(start, a, b, rounds), chains.sum(axis=0), rtol=1e-9, atol=1e-9
    )


def timed_as(monkeypatch, ms):
    """Every probe does its work and is told that it took so long."""
    monkeypatch.setattr(cpu_probes, "FEW", FOUR)
    monkeypatch.setattr(cpu_probes, "CALLS", 5)
    monkeypatch.setattr(cpu_probes, "EXTENT", 64)
    monkeypatch.setattr(processor, "last_level_cache", lambda: 2**25)

    def took(work):
        work()
        return ms

    monkeypatch.setattr(cpu_probes, "_ms", took)


def test_the_processor_s_figures_are_bytes_and_flops_over_time(monkeypatch):
    timed_as(monkeypatch, 2.0)
    told = cpu_probes.ceilings()
    assert told.copy_bytes_per_s == 2 * 2**26 / 2e-3  # twice the caches, read and written
    assert told.fp32_flops_per_s == 2 * 64**3 / 2e-3
    assert told.launch_us == pytest.approx(1e3 * 2.0 / 5)
    assert (told.copy_n, told.fp32_n, told.launch_n) == (4, 4, 4)
    assert told.copy.startswith("NumPy copy on one core, 64 MiB") and "64 x 64" in told.fp32
    assert "5 in a row" in told.launch and told.device == device_name() and told.cache_bytes == 2**25


def test_no_ceiling_is_taken_from_a_wrong_product(monkeypatch):
    timed_as(monkeypatch, 2.0)
    right = np.matmul

    def wrong(a, b, out):
        right(a, b, out=out)
        out[7, 7] += 1

    monkeypatch.setattr(np, "matmul", wrong)
    with pytest.raises(RuntimeError, match="no ceiling is taken from it"):
        cpu_probes.ceilings()


def test_ceilings_are_measured_once_in_a_process_and_stand_with_each_run(monkeypatch):
    cpu.ceilings.cache_clear()
    timed_as(monkeypatch, 2.0)
    s = ConvShape(1, 1, 8, 8, 2, 3, 3)
    first = run("conv/direct", s, engine="cpu", budget=QUICK).measurement
    timed_as(monkeypatch, 3.0)
    second = run("conv/direct", s, engine="cpu", budget=QUICK).measurement
    cpu.ceilings.cache_clear()
    assert first.conditions["ceilings"] == second.conditions["ceilings"]
    assert first.conditions["ceilings"]["fp32_flops_per_s"] == float(f"{2 * 64**3 / 2e-3:.5g}")


def test_a_device_that_cannot_tell_its_ceilings_is_still_timed(monkeypatch):
    def none():
        raise RuleError("a copy beyond the caches needs more than is free")

    monkeypatch.setattr(cpu, "ceilings", none)
    m = run("conv/direct", ConvShape(1, 1, 8, 8, 2, 3, 3), engine="cpu", budget=QUICK).measurement
    assert m.n and "ceilings" not in m.conditions


class Queue:
    """A GPU on paper, in ms: what is queued runs in turn, and the processor's time stands beside its own."""

    def __init__(self):
        self.now = self.free = 0.0  # the processor's clock; when the GPU has done all that is queued
        self.flushes = 0

    def run(self, thinks: float, takes: float) -> None:
        """Queued after the processor thought about it."""
        self.now += thinks
        self.free = max(self.free, self.now) + takes

    def flush(self) -> None:
        self.flushes += 1
        self.run(thinks=0.001, takes=0.1)


class Event:
    """As CuPy's, on a Queue."""

    def __init__(self, queue: Queue):
        self.queue = queue

    def record(self, stream):
        self.at = max(self.queue.free, self.queue.now)

    def synchronize(self):
        self.queue.now = max(self.queue.now, self.at)


@pytest.fixture
def queue(monkeypatch):
    queue = Queue()
    events = SimpleNamespace(
        Event=lambda: Event(queue), get_elapsed_time=lambda start, end: end.at - start.at
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=events))
    monkeypatch.setattr(cuda_timing, "time", SimpleNamespace(perf_counter=lambda: queue.now / 1e3))
    return queue


@pytest.mark.parametrize("thinks", [0.001, 0.05, 0.3, 2.0])
def test_no_sample_waits_for_the_processor(queue, thinks):
    """Two launches of 0.02 ms with a thought between them: what they take together, however long it is."""

    def run():
        queue.run(thinks=0.001, takes=0.02)
        queue.run(thinks, takes=0.02)

    take = cuda_timing.taker(run, None, queue.flush)
    assert [take() for _ in range(5)] == pytest.approx([0.04] * 5)
    queue.flushes = 0
    take()
    assert queue.flushes <= max(1, 2 * (thinks + 0.1) / 0.1)  # and no more flushes than twice what it takes


def test_a_thought_that_comes_now_and_then_is_in_no_sample(queue):
    thoughts = iter([0.001, 0.001, 0.5, 0.001, 0.001, 0.9, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001])

    def run():
        queue.run(thinks=0.001, takes=0.02)
        queue.run(next(thoughts), takes=0.02)

    take = cuda_timing.taker(run, None, queue.flush)
    assert [take() for _ in range(6)] == pytest.approx([0.04] * 6)
    assert take.queued == AHEAD


def test_more_launches_than_the_queue_holds_wait_and_it_is_told(queue):
    """The processor is held until there is room, however long the GPU is kept busy before."""
    queued = []

    def run():
        for _ in range(8):
            queued[:] = [end for end in queued if end > queue.now]
            if len(queued) >= 4:
                queue.now = queued[0]
            queue.run(thinks=0.05, takes=0.02)
            queued.append(queue.free)

    take = cuda_timing.taker(run, None, queue.flush)
    assert min(take() for _ in range(3)) > 8 * 0.02
    assert take.queued == "0 of 3"


def test_what_waits_for_the_gpu_itself_is_taken_all_the_same(queue):
    def run():
        queue.run(thinks=0.001, takes=0.02)
        queue.now = max(queue.now, queue.free)  # the call waits
        queue.run(thinks=0.001, takes=0.02)

    take = cuda_timing.taker(run, None, queue.flush)
    assert take() == pytest.approx(0.041)
    assert take.queued == "0 of 1"
    assert queue.flushes < 2 * cuda_timing.MOST_FLUSHES


# -- memory, stage by stage ----------------------------------------------------------------------
def opened(program):
    session = cpu.open(program, seeded_inputs(program.of_role(INPUT)))
    session.verify_run()
    return session


@settings(max_examples=40, deadline=None)
@given(shape=conv_shapes())
def test_each_stage_tells_what_is_there_and_the_peak_is_the_most(shape):
    for rung in availability.supported_rungs(conv_ladder.LADDER, "cpu", shape):
        program = rung.build(shape, rung.default_tiles)
        session = opened(program)
        before = [ALLOCATED[role] for role in (INPUT, OUTPUT, WORKSPACE) if program.of_role(role)]
        assert [s["at"] for s in session.timeline] == [*before, *(step.name for step in program.steps)]
        for i, stage in enumerate(session.timeline):
            assert stage["input"] == program.nbytes(INPUT)
            assert stage["output"] == (program.nbytes(OUTPUT) if i >= 1 else 0)
            assert stage["workspace"] >= (program.nbytes(WORKSPACE) if i >= 2 else 0)
        totals = [stage["input"] + stage["output"] + stage["workspace"] for stage in session.timeline]
        assert session.bytes["peak"] == max(totals) >= program.nbytes()
        assert session.bytes["workspace"] == max(s["workspace"] for s in session.timeline)


def of_steps(*twins):
    """x [1000] to y [1000] by so many steps on the same arguments."""
    buffers = (Buffer("x", INPUT, (1000,)), Buffer("y", OUTPUT, (1000,)))
    steps = tuple(LibraryCall(f"step {n}", ("x", "y"), twin, None) for n, twin in enumerate(twins, 1))
    return Program(buffers, steps)


def by_copy(count):
    def twin(x, y):
        room = np.ones(count, np.uint8)
        y[...] = x + room[0] - 1

    return twin


def test_what_a_step_takes_for_itself_is_its_own_workspace():
    session = opened(of_steps(by_copy(1), by_copy(10**6), by_copy(1)))
    told = {stage["at"]: stage["workspace"] for stage in session.timeline}
    assert told["step 1"] == told["step 3"] == 0  # below what Python's own objects take
    assert 10**6 <= told["step 2"] < 1.02 * 10**6
    assert session.bytes["peak"] == 8000 + told["step 2"] and session.bytes["workspace"] == told["step 2"]


def test_a_second_run_tells_the_same_and_nothing_is_added_up():
    program = of_steps(by_copy(10**6))
    session = opened(program)
    first = list(session.timeline)
    session.verify_run()
    assert [s["at"] for s in session.timeline] == [s["at"] for s in first]
    assert session.bytes["workspace"] == pytest.approx(first[-1]["workspace"], rel=0.02)


def test_nothing_is_copied_to_a_processor():
    assert cpu.copies(opened(of_steps(by_copy(1)))) is None
