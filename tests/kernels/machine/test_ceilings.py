"""Ceilings of a device, samples of the GPU timer, and memory by stage: the arithmetic of each figure, and its faults."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
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
QUICK = Budget(samples=3, seconds=0.1, min_samples=1, warm_up_s=0)


def samples_from(*ms):
    remaining = iter(ms)
    return lambda: next(remaining)


# -- ceilings ------------------------------------------------------------------------------------
def test_rates_are_the_best_sample_and_launches_the_median():
    assert ceilings.best(6e9, samples_from(4.0, 2.0, 3.0, 8.0), FOUR) == (3e12, 4)  # 6 GB in 2 ms
    assert ceilings.median(samples_from(4.0, 2.0, 3.0, 8.0), FOUR) == (3.5, 4)


def test_row_of_ceilings_has_five_digits_and_the_date():
    figures = Ceilings(
        4.2812345e12, 20, "copy", 65.123456e12, 20, "FMA", 1.234567, 20, "empty", 2**25, "a GPU"
    ).to_row()
    assert figures["copy_bytes_per_s"] == 4.2812e12 and figures["fp32_flops_per_s"] == 6.5123e13
    assert figures["launch_us"] == 1.2346 and figures["copy_n"] == 20 and figures["cache_bytes"] == 2**25
    assert figures["date"] == datetime.datetime.now(datetime.UTC).date().isoformat()
    assert "launch_host_us" not in figures and "launch_sync_us" not in figures


@given(
    rounds=st.integers(0, 300),
    a=st.floats(0.5, 0.9999),
    b=st.floats(-1, 1),
    start=st.lists(st.integers(0, 1023), min_size=1, max_size=5),
)
def test_closed_form_equals_the_kernels_loop(rounds, a, b, start):
    start = np.array(start)
    chains = np.arange(ceilings.FMA_CHAINS)[:, None] + start.astype(np.float64)
    for _ in range(rounds):
        chains = float(np.float32(a)) * chains + float(np.float32(b))
    np.testing.assert_allclose(ceilings.fma_sum(start, a, b, rounds), chains.sum(axis=0), rtol=1e-9, atol=1e-9)


def set_probe_time(monkeypatch, ms):
    """Make every probe run and report a time of `ms`."""
    monkeypatch.setattr(cpu_probes, "FEW", FOUR)
    monkeypatch.setattr(cpu_probes, "CALLS", 5)
    monkeypatch.setattr(cpu_probes, "EXTENT", 64)
    monkeypatch.setattr(processor, "last_level_cache", lambda: 2**25)

    def fixed_time(work):
        work()
        return ms

    monkeypatch.setattr(cpu_probes, "_ms", fixed_time)


def test_processor_rates_are_bytes_and_flops_over_time(monkeypatch):
    set_probe_time(monkeypatch, 2.0)
    figures = cpu_probes.ceilings()
    assert figures.copy_bytes_per_s == 2 * 2**26 / 2e-3  # twice the caches, read and written
    assert figures.fp32_flops_per_s == 2 * 64**3 / 2e-3
    assert figures.launch_us == pytest.approx(1e3 * 2.0 / 5)
    assert (figures.copy_n, figures.fp32_n, figures.launch_n) == (4, 4, 4)
    assert figures.copy.startswith("NumPy copy on one core, 64 MiB") and "64 x 64" in figures.fp32
    assert "5 in a row" in figures.launch and figures.device == device_name() and figures.cache_bytes == 2**25


def test_wrong_product_gives_no_ceiling(monkeypatch):
    set_probe_time(monkeypatch, 2.0)
    matmul = np.matmul

    def wrong(a, b, out):
        matmul(a, b, out=out)
        out[7, 7] += 1

    monkeypatch.setattr(np, "matmul", wrong)
    with pytest.raises(RuntimeError, match="no ceiling is taken from it"):
        cpu_probes.ceilings()


def test_ceilings_are_measured_once_in_a_process_and_stored_with_each_run(monkeypatch):
    cpu.ceilings.cache_clear()
    set_probe_time(monkeypatch, 2.0)
    s = ConvShape(1, 1, 8, 8, 2, 3, 3)
    first = run("conv/direct", s, engine="cpu", budget=QUICK).measurement
    set_probe_time(monkeypatch, 3.0)
    second = run("conv/direct", s, engine="cpu", budget=QUICK).measurement
    cpu.ceilings.cache_clear()
    assert first.conditions["ceilings"] == second.conditions["ceilings"]
    assert first.conditions["ceilings"]["fp32_flops_per_s"] == float(f"{2 * 64**3 / 2e-3:.5g}")


def test_device_without_ceilings_is_still_timed(monkeypatch):
    def none():
        raise RuleError("a copy beyond the caches needs more than is free")

    monkeypatch.setattr(cpu, "ceilings", none)
    m = run("conv/direct", ConvShape(1, 1, 8, 8, 2, 3, 3), engine="cpu", budget=QUICK).measurement
    assert m.n and "ceilings" not in m.conditions


class FakeGpu:
    """A simulated GPU, times in ms: queued work runs in order, and the processor has its own clock."""

    def __init__(self):
        self.now = self.free = 0.0  # the processor's clock; when the GPU has finished all queued work
        self.flushes = 0

    def run(self, delay: float, duration: float) -> None:
        """Queue work of `duration` after the processor has spent `delay`."""
        self.now += delay
        self.free = max(self.free, self.now) + duration

    def flush(self) -> None:
        self.flushes += 1
        self.run(delay=0.001, duration=0.1)


class Event:
    """A fake of CuPy's event, on a FakeGpu."""

    def __init__(self, queue: FakeGpu):
        self.queue = queue

    def record(self, stream):
        self.at = max(self.queue.free, self.queue.now)

    def synchronize(self):
        self.queue.now = max(self.queue.now, self.at)


@pytest.fixture
def queue(monkeypatch):
    queue = FakeGpu()
    events = SimpleNamespace(Event=lambda: Event(queue), get_elapsed_time=lambda start, end: end.at - start.at)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=events))
    monkeypatch.setattr(cuda_timing, "time", SimpleNamespace(perf_counter=lambda: queue.now / 1e3))
    return queue


@pytest.mark.parametrize("delay", [0.001, 0.05, 0.3, 2.0])
def test_no_sample_waits_for_the_processor(queue, delay):
    """Two launches of 0.02 ms with a delay between them: a sample is 0.04 ms, however long the delay is."""

    def run():
        queue.run(delay=0.001, duration=0.02)
        queue.run(delay, duration=0.02)

    sampler = cuda_timing.sampler(run, None, queue.flush)
    assert [sampler() for _ in range(5)] == pytest.approx([0.04] * 5)
    queue.flushes = 0
    sampler()
    assert queue.flushes <= max(1, 2 * (delay + 0.1) / 0.1)  # at most twice as many flushes as needed


def test_occasional_delay_is_in_no_sample(queue):
    delays = iter([0.001, 0.001, 0.5, 0.001, 0.001, 0.9, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001])

    def run():
        queue.run(delay=0.001, duration=0.02)
        queue.run(next(delays), duration=0.02)

    sampler = cuda_timing.sampler(run, None, queue.flush)
    assert [sampler() for _ in range(6)] == pytest.approx([0.04] * 6)
    assert sampler.queued == AHEAD


def test_full_queue_is_reported_as_not_queued_in_time(queue):
    """The processor waits for a free slot of the queue, however long the GPU is kept busy before."""
    queued = []

    def run():
        for _ in range(8):
            queued[:] = [end for end in queued if end > queue.now]
            if len(queued) >= 4:
                queue.now = queued[0]
            queue.run(delay=0.05, duration=0.02)
            queued.append(queue.free)

    sampler = cuda_timing.sampler(run, None, queue.flush)
    assert min(sampler() for _ in range(3)) > 8 * 0.02
    assert sampler.queued == "0 of 3"


def test_call_that_synchronizes_is_sampled(queue):
    def run():
        queue.run(delay=0.001, duration=0.02)
        queue.now = max(queue.now, queue.free)  # the call waits
        queue.run(delay=0.001, duration=0.02)

    sampler = cuda_timing.sampler(run, None, queue.flush)
    assert sampler() == pytest.approx(0.041)
    assert sampler.queued == "0 of 1"
    assert queue.flushes < 2 * cuda_timing.MAX_FLUSHES


# -- memory, stage by stage ----------------------------------------------------------------------
def verified_session(program):
    session = cpu.open(program, seeded_inputs(program.of_role(INPUT)))
    session.verify_run()
    return session


@settings(max_examples=40)
@given(shape=conv_shapes())
def test_stages_list_allocated_bytes_and_the_peak_is_their_maximum(shape):
    for rung in availability.supported_rungs(conv_ladder.LADDER, "cpu", shape):
        program = rung.build(shape, rung.default_tiles)
        session = verified_session(program)
        before = [ALLOCATED[role] for role in (INPUT, OUTPUT, WORKSPACE) if program.of_role(role)]
        assert [s["at"] for s in session.memory.timeline] == [*before, *(step.name_on_cpu for step in program.steps)]
        for i, stage in enumerate(session.memory.timeline):
            assert stage["input"] == program.nbytes(INPUT)
            assert stage["output"] == (program.nbytes(OUTPUT) if i >= 1 else 0)
            assert stage["workspace"] >= (program.nbytes(WORKSPACE) if i >= 2 else 0)
        totals = [stage["input"] + stage["output"] + stage["workspace"] for stage in session.memory.timeline]
        assert session.memory.peak == max(totals) >= program.nbytes()
        assert session.memory.workspace == max(s["workspace"] for s in session.memory.timeline)


def program_of_steps(*functions):
    """Returns a program from x [1000] to y [1000] with one step for each function."""
    buffers = (Buffer("x", INPUT, (1000,)), Buffer("y", OUTPUT, (1000,)))
    steps = tuple(LibraryCall(f"step {n}", ("x", "y"), function, None) for n, function in enumerate(functions, 1))
    return Program(buffers, steps)


def copy_with_scratch(count):
    def function(x, y):
        scratch = np.ones(count, np.uint8)
        y[...] = x + scratch[0] - 1

    return function


def test_memory_allocated_by_a_step_is_its_workspace():
    """In a process of its own: what threads of other tests allocate meanwhile would count too."""
    code = f"from {__name__} import check_memory_of_steps; check_memory_of_steps()"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)


def check_memory_of_steps():
    session = verified_session(program_of_steps(copy_with_scratch(1), copy_with_scratch(10**6), copy_with_scratch(1)))
    workspaces = {stage["at"]: stage["workspace"] for stage in session.memory.timeline}
    # Too small to be counted beside Python's own objects.
    assert workspaces["step 1"] == workspaces["step 3"] == 0
    assert 10**6 <= workspaces["step 2"] < 1.02 * 10**6
    assert session.memory.peak == 8000 + workspaces["step 2"] and session.memory.workspace == workspaces["step 2"]


def test_second_run_gives_the_same_timeline():
    program = program_of_steps(copy_with_scratch(10**6))
    session = verified_session(program)
    first = list(session.memory.timeline)
    session.verify_run()
    assert [s["at"] for s in session.memory.timeline] == [s["at"] for s in first]
    assert session.memory.workspace == pytest.approx(first[-1]["workspace"], rel=0.02)


def test_cpu_engine_has_no_copies():
    assert cpu.copies(verified_session(program_of_steps(copy_with_scratch(1)))) is None
