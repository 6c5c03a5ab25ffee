"""The GPU's ceilings, copies and memory: results are plausible and reproducible, and wrong ones are rejected."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from kernels.conv import ladder as conv_ladder
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.engines.cuda import probes as cuda_probes
from kernels.engines.protocol import ALLOCATED, total_bytes
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, LibraryCall, Program
from kernels.runner import run, seeded_inputs

pytestmark = [pytest.mark.gpu, pytest.mark.alone]
GRAIN = 512  # bytes: CuPy's pool allocates multiples of this
WIDE = ConvShape(N=16, C=16, H=256, W=256, K=1, R=1, S=1)  # 64 MiB in, 4 MiB out
QUICK = Budget(samples=5, seconds=0.5)


@pytest.fixture(scope="module")
def ceilings():
    return cuda_probes.ceilings()


# -- ceilings ------------------------------------------------------------------------------------
def test_ceilings_are_plausible_for_a_gpu(ceilings):
    assert 1e11 < ceilings.copy_bytes_per_s < 2e13
    assert 1e12 < ceilings.fp32_flops_per_s < 3e14
    assert 0.3 < ceilings.launch_us < 20 and ceilings.launch_us < ceilings.launch_sync_us
    assert min(ceilings.copy_n, ceilings.fp32_n, ceilings.launch_n) >= 5
    assert ceilings.device == cuda.device_name() and ceilings.cache_bytes > 2**20


def test_second_measurement_is_within_10_percent(ceilings):
    second = cuda_probes.ceilings()
    for rate in ("copy_bytes_per_s", "fp32_flops_per_s", "launch_us"):
        assert getattr(second, rate) == pytest.approx(getattr(ceilings, rate), rel=0.1), rate


def run_fma(change=lambda out: None):
    """Returns the output of the FMA kernel after `change`."""
    stream = cuda.own_stream()
    with stream:
        fma, out = cuda_probes._fma(stream)
        fma()
        stream.synchronize()
        change(out)
    return out


def change_one_element(out):
    values = out.get()
    values[12345] *= 1.01
    out.set(values)


def test_fma_kernel_equals_closed_form():
    cuda_probes._verify_fma(run_fma())


@pytest.mark.parametrize("fault", ["one element", "never run", "half the rounds", "another factor"])
def test_wrong_fma_result_is_rejected(monkeypatch, fault):
    if fault == "one element":
        out = run_fma(change_one_element)
    elif fault == "never run":
        _, out = cuda_probes._fma(cuda.own_stream())
    else:
        name, value = {"half the rounds": ("ROUNDS", cuda_probes.ROUNDS // 2), "another factor": ("A", 0.9998)}[fault]
        with monkeypatch.context() as patch:
            patch.setattr(cuda_probes, name, value)
            out = run_fma()
    with pytest.raises(RuntimeError, match="no ceiling is taken from it"):
        cuda_probes._verify_fma(out)


class TruncatingMemory:
    """Memory to which all but the last two bytes are copied."""

    def __init__(self, memory):
        self.memory = memory

    def copy_from_device_async(self, source, size, stream):
        self.memory.copy_from_device_async(source, size - 2, stream)

    def __getattr__(self, name):
        return getattr(self.memory, name)

    def __add__(self, bytes_):
        return self.memory + bytes_


def test_truncated_copy_is_rejected():
    import cupy

    size, stream = 2**20, cuda.own_stream()
    with stream:
        rate, n = cuda_probes._copy_rate(cupy.cuda.alloc(size), cupy.cuda.alloc(size), size, stream, lambda: None)
        assert rate > 0 and n >= 5
        with pytest.raises(RuntimeError, match="the device's copy did not arrive"):
            cuda_probes._copy_rate(
                cupy.cuda.alloc(size), TruncatingMemory(cupy.cuda.alloc(size)), size, stream, lambda: None
            )


def test_measured_kernel_is_below_the_ceilings(ceilings):
    """A 1x1 convolution reads its input once: no faster than a copy moves as many bytes."""
    m = run("conv/direct", WIDE, engine="cuda", budget=QUICK).measurement
    moved = (m.input_bytes + m.output_bytes) / m.median_ms * 1e3
    assert moved < ceilings.copy_bytes_per_s
    assert m.conditions["ceilings"]["device"] == m.device


# -- copies --------------------------------------------------------------------------------------
@pytest.fixture
def session():
    program = conv_ladder.LADDER.rung("conv/direct").build(WIDE, {"BLOCK": 256})
    session = cuda.open(program, seeded_inputs(program.of_role(INPUT)))
    session.verify_run()
    yield session
    session.close()


def test_copy_bandwidth_is_below_the_memory_bandwidth(session, ceilings):
    ms = cuda.copies(session)
    assert ms["n"] >= 3
    for direction, bytes_ in (("h2d", session.memory.input), ("d2h", session.memory.output)):
        for kind in ("pageable", "pinned"):
            rate = bytes_ / ms[f"{direction}_{kind}"] * 1e3
            assert 2e8 < rate < ceilings.copy_bytes_per_s, (direction, kind)
    assert ms["h2d_pinned"] < ms["h2d_pageable"]  # the driver need not stage it


def test_copies_do_not_change_the_data(session):
    before = {name: array.get() for name, array in session.arrays.items()}
    cuda.copies(session)
    for name, array in session.arrays.items():
        np.testing.assert_array_equal(array.get(), before[name])


def test_host_time_to_queue_is_not_in_the_samples(session):
    """A library that computes for a millisecond on the host between two launches is not measured as slower."""
    budget = Budget(samples=30, seconds=2)
    plain = cuda.sample([session], "cold", budget)[0]
    call = session._calls[0]

    def slow():
        time.sleep(1e-3)
        call()

    session._calls[:] = [call, slow]
    twice = cuda.sample([session], "cold", budget)[0]
    assert np.median(twice.samples_ms) < 2.5 * np.median(plain.samples_ms) < 1


def test_copies_returns_none_above_the_pinned_limit(monkeypatch, session):
    monkeypatch.setattr(cuda_probes, "MAX_PINNED", session.memory.input)
    assert cuda.copies(session) is None


# -- memory, stage by stage ----------------------------------------------------------------------
@pytest.mark.parametrize("rung", [r.name for r in conv_ladder.LADDER.rungs if not r.library or r.library == "cuBLAS"])
def test_timeline_equals_memory_hook(rung):
    found = conv_ladder.LADDER.rung(rung)
    program = found.build(ConvShape(2, 16, 56, 56, 32, 3, 3, pad=1), found.default_tiles)
    session = cuda.open(program, seeded_inputs(program.of_role(INPUT)))
    for _ in range(2):  # a second run gives the same
        session.verify_run()
        names = [engine_name for role, engine_name in ALLOCATED.items() if program.of_role(role)]
        assert [s["at"] for s in session.memory.timeline] == [*names, *(step.name for step in program.steps)]
        assert max(map(total_bytes, session.memory.timeline)) == session.memory.peak
        last = session.memory.timeline[-1]
        for role in (INPUT, OUTPUT, WORKSPACE):
            slack = GRAIN * len(program.of_role(role))
            assert 0 <= last[role] - program.nbytes(role) <= slack
            assert getattr(session.memory, role) == max(stage[role] for stage in session.memory.timeline)
        assert session.memory.timeline[0] == {"at": "inputs", "input": last["input"], "output": 0, "workspace": 0}
    session.close()


def test_memory_a_library_allocates_is_workspace_of_its_step(monkeypatch):
    import cupy

    def bind(routine, x, y):
        def call():
            workspace = cupy.empty(10**6, np.uint8) if routine == "roomy" else None
            y.data.copy_from_device_async(x.data, x.nbytes, cupy.cuda.get_current_stream())
            del workspace

        return call

    buffers = (Buffer("x", INPUT, (1024,)), Buffer("y", OUTPUT, (1024,)))
    steps = tuple(LibraryCall(name, ("x", "y"), None, partial(bind, name)) for name in ("plain", "roomy", "plain"))
    session = cuda.open(Program(buffers, steps), seeded_inputs(buffers[:1]))
    np.testing.assert_array_equal(session.verify_run(), session.arrays["x"].get())
    taken = [(stage["at"], stage["workspace"]) for stage in session.memory.timeline[2:]]
    assert [at for at, _ in taken] == ["plain", "roomy", "plain"]
    assert taken[0][1] == taken[2][1] == 0 and 10**6 <= taken[1][1] < 10**6 + GRAIN
    memory = session.memory
    assert (memory.input, memory.output, memory.workspace) == (4096, 4096, taken[1][1])
    assert memory.peak == 8192 + taken[1][1]
    session.close()
