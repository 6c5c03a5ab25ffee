"""run() and compare() on the cpu engine: correct at any shape, refused by name, never timed unverified."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import __main__ as command
from kernels import engines, runner
from kernels.__main__ import listing_json
from kernels.conv import ladder as conv_ladder
from kernels.conv.shape import ConvShape
from kernels.engines import cpu
from kernels.ladders import LADDERS, find
from kernels.machine.timing import Budget, interleave
from kernels.model.program import WORKSPACE, RuleError
from kernels.model.result import Measurement, Memory, Result
from kernels.model.rung import Cost
from kernels.records import availability
from kernels.runner import VerificationError, compare
from kernels.runner import run as run_rung
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes

RUNGS = [r.name for r in conv_ladder.BASIC_RUNGS]
TOY = ConvShape(1, 1, 8, 8, 2, 3, 3)
RECORD = ("record", "--engine", "cpu", "--modes", "hot", "--seconds", "0.01")
QUICK = Budget(samples=3, seconds=0.2, min_samples=1, warm_up_s=0)


@settings(max_examples=15)
@given(shape=conv_shapes(), tile=st.sampled_from(conv_ladder.TILES))
def test_every_rung_agrees_at_any_shape(shape, tile):
    supported = [rung.name for rung in availability.supported_rungs(conv_ladder.LADDER, "cpu", shape)]
    assert set(RUNGS) <= set(supported)
    for result in compare(supported, shape, engine="cpu", tiles={"conv/im2col-gemm": {"TILE": tile}}, measure=False):
        assert result.output.shape == shape.y_shape and result.output.dtype == np.float32
        assert np.isfinite(result.error), result.rung  # also of outputs near zero, as the FFT gives them


def test_result_has_everything():
    s = ConvShape(N=1, C=3, H=8, W=8, K=4, R=3, S=3, pad=1)
    x = np.random.default_rng(3).standard_normal(s.x_shape)
    r = run_rung("conv/im2col-gemm", s, {"x": x}, engine="cpu", tiles={"TILE": 8}, budget=QUICK)
    assert r.tiles == {"BLOCK": 256, "TILE": 8}
    assert 1 <= r.measurement.n <= 3 and r.measurement.mode == "cold"
    assert r.predicted.workspace_bytes == r.measurement.workspace_bytes == 4 * 27 * 64
    assert r.predicted.flops == s.flops
    assert r.measurement.peak_bytes >= 4 * (x.size + 108 + 256 + 27 * 64)
    assert [name for name, _ in r.measurement.parts_ms] == ["im2col", "gemm"]
    assert r.counters is None and r.trace is None


def test_padded_copy_of_numpy_is_counted_as_workspace():
    s = ConvShape(1, 8, 64, 64, 2, 3, 3, pad=1)
    r = run_rung("conv/direct", s, engine="cpu", budget=QUICK)
    assert r.predicted.workspace_bytes == 0
    assert r.measurement.workspace_bytes >= 4 * 8 * 66 * 66


@every(
    ("change", "rule"),
    [
        ({"rungs": ["conv/nothing"]}, "no rung 'conv/nothing'; there are: conv/direct"),
        ({"rungs": ["gemm2/naive"]}, "no ladder 'gemm2'"),
        ({"engine": "tpu"}, "no engine 'tpu'; there are: cuda, cpu, emulator"),
        ({"tiles": {"TILE": 7}}, "TILE must be one of 8, 16, 32, got 7"),
        ({"tiles": {"BM": 64}}, "no tile size 'BM'"),
        ({"mode": "warm"}, "mode must be one of cold, hot"),
        ({"inputs": {"x": np.zeros((1, 1, 8, 9))}}, r"x must have shape \(1, 1, 8, 8\), got \(1, 1, 8, 9\)"),
        ({"inputs": {"x": np.full((1, 1, 8, 8), np.inf)}}, "x must be finite"),
        ({"inputs": {"x": np.full((1, 1, 8, 8), 1e300)}}, "x must be finite in float32"),
        ({"inputs": {"x": np.full((1, 1, 8, 8), "a")}}, "x must hold numbers"),
        ({"inputs": {"z": np.zeros(3)}}, "no input 'z'; there are: x, w"),
        ({"shape": ConvShape(70_000, 1, 1, 1, 1, 1, 1)}, r"N <= 65535 \(grid.y\)"),
        ({"shape": ConvShape(64, 1024, 512, 512, 1024, 3, 3)}, r"[\d,]+ bytes are free; take a smaller"),
        ({"shape": ConvShape(1, 1, 50_000, 50_000, 1, 1, 1)}, r"K\*P\*Q must stay below 2\^31"),
    ],
)
def test_broken_rule_is_named(change, rule):
    arguments = {"rungs": ["conv/im2col-gemm"], "shape": TOY, "engine": "cpu", "budget": QUICK} | change
    with pytest.raises(RuleError, match=rule):
        compare(arguments.pop("rungs"), arguments.pop("shape"), **arguments)


def replace_direct_step(monkeypatch, cpu_step):
    """Replace the step of conv/direct."""
    rung = find("conv/direct")

    def build(shape, tiles):
        program = rung.build(shape, tiles)
        return dataclasses.replace(program, steps=(dataclasses.replace(program.steps[0], cpu=cpu_step),))

    broken = dataclasses.replace(conv_ladder.LADDER, rungs=(dataclasses.replace(rung, build=build),))
    monkeypatch.setitem(LADDERS, "conv", broken)


@pytest.mark.parametrize("fault", ["nothing written", "one element", "a lost tap", "NaN", "wrong sign"])
def test_unverified_result_is_not_timed(monkeypatch, fault):
    from kernels.conv import cpu as conv_cpu

    def faulty_step(x, w, y, s):
        if fault == "nothing written":
            return
        if fault == "a lost tap":
            w = w.copy()
            w[0, 0, 1, 1] = 0
        conv_cpu.direct(x, w, y, s)
        if fault == "one element":
            y[0, 1, 3, 4] *= 1.001
        elif fault == "NaN":
            y[0, 0, 0, 0] = np.nan
        elif fault == "wrong sign":
            y *= -1

    def never(*args):
        raise AssertionError("an unverified rung was timed")

    replace_direct_step(monkeypatch, faulty_step)
    monkeypatch.setattr(cpu, "sample", never)
    with pytest.raises(VerificationError, match="nothing unverified gets a time"):
        run_rung("conv/direct", TOY, engine="cpu")


def test_samples_are_interleaved_until_the_budget_is_spent():
    order, now = [], [0.0]

    def sampler(name):
        def sample():
            order.append(name)
            now[0] += 1
            return len(order)

        return sample

    samples = interleave(
        [sampler("a"), sampler("b")], Budget(samples=100, seconds=5, min_samples=2), clock=lambda: now[0]
    )
    assert order == ["a", "b"] * 3  # rounds of 2 s: the third starts within 5 s
    assert samples == [(1, 3, 5), (2, 4, 6)]
    order.clear()
    assert len(interleave([sampler("a")], Budget(samples=4, seconds=1e9), clock=lambda: now[0])[0]) == 4
    slow = interleave([sampler("a")], Budget(samples=9, seconds=0, min_samples=2), clock=lambda: now[0])
    assert len(slow[0]) == 2  # `least` samples are taken even beyond the budget


def test_statistics_of_known_samples():
    m = Measurement((*range(100), 9_999), "cold", Memory(0, 0, 0, 0), "none")  # one slow sample moves no quantile
    assert (m.median_ms, m.p20_ms, m.p80_ms, m.n) == (50, 20, 80, 101)


def test_same_seed_same_inputs():
    buffers = find("conv/direct").build(TOY, {"BLOCK": 256}).of_role("input")
    a, b, c = (runner.seeded_inputs(buffers, seed) for seed in (1, 1, 2))
    assert all((a[n] == b[n]).all() and (a[n] != c[n]).any() for n in a)
    assert all(v.any() for v in a.values())


@settings(max_examples=20)
@given(conv_shapes())
def test_program_is_consistent(s):
    for rung in availability.supported_rungs(conv_ladder.LADDER, "emulator", s):
        program = rung.build(s, rung.default_tiles)
        names = {b.name for b in program.buffers}
        for step in program.steps:
            assert {a for a in step.args if isinstance(a, str)} <= names
        predicted = rung.cost(s, program)
        assert predicted.workspace_bytes == program.nbytes(WORKSPACE)
        assert predicted.bytes >= s.bytes


def test_the_command_prints_the_spread_and_the_rate_of_a_run(monkeypatch, capsys):
    m = Measurement(tuple(range(1, 102)), "cold", Memory(1, 2, 3, 6), "a GPU")
    result = Result("conv/direct", "cuda", TOY, {}, {}, 0.0, m, Cost(51 * 10**9, 0, 0))
    monkeypatch.setattr(command, "run", lambda *_, **__: result)
    assert command.main(["run", "conv/direct", "--shape", "toy"]) == 0
    _, time, rate, *_ = capsys.readouterr().out.splitlines()
    assert re.findall(r"[\d.]+", time) == ["51", "20", "21", "80", "81", "101"]  # ms, p20, p80, n
    assert "1 TFLOP/s" in rate


def test_command_line_json():
    shape = "N=1,C=3,H=8,W=8,K=4,R=3,S=3,pad=1"
    arguments = ["run", "conv/im2col-gemm", "--shape", shape, "--engine", "cpu", "--json"]
    out = subprocess.run([sys.executable, "-m", "kernels", *arguments], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    result = json.loads(out.stdout)
    assert set(result) == {"rung", "title", "engine", "shape", "tiles", "error", "measurement", "predicted"}
    assert set(result["measurement"]) >= {
        "median_ms",
        "p20_ms",
        "p80_ms",
        "n",
        "peak_bytes",
        "workspace_bytes",
        "device",
    }
    assert set(result["predicted"]) == {"flops", "bytes", "workspace_bytes"}
    assert result["error"] < 1e-6 and result["predicted"]["workspace_bytes"] == 6912


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "conv/direct", "--shape", "N=1,C=3"), "missing H"),
        (("run", "conv/direct", "--shape", "toy", "--tiles", "BLOCK=x"), "NAME=NUMBER"),
        ((*RECORD, "--out", "/nowhere/at/all", "--presets", "toy"), "No such file"),
        ((*RECORD, "--out", "r", "--presets", "toys"), "no preset 'toys'"),
    ],
)
def test_command_line_errors_are_sentences(args, message, capsys):
    assert command.main(args) == 2 and message in capsys.readouterr().err


def test_list_names_all(capsys):
    assert command.main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*RUNGS, "vgg-conv1_2", "cpu"))


def test_listing_as_json_has_every_preset_of_every_ladder():
    """Two ladders may use one name: backward-toy is a shape of attention and one of a convolution."""
    listed = json.loads(json.dumps(listing_json(), allow_nan=False))["presets"]
    for ladder in LADDERS.values():
        assert listed[ladder.name] == json.loads(
            json.dumps({key: preset.shape.params() for key, preset in ladder.presets.items()})
        )
    assert {name for name, presets in listed.items() if "backward-toy" in presets} > {
        "conv-dinput",
        "attention-backward",
    }


def test_engine_that_cannot_run_says_why():
    status = engines.available()["cuda"]
    if status.ready:
        return  # the gpu tests cover it
    with pytest.raises(RuleError, match=f"engine 'cuda' cannot run here: {status.text}"):
        run_rung("conv/direct", TOY, engine="cuda")


def test_too_many_threads_to_emulate_are_refused_before_the_reference_is_computed(monkeypatch):
    shape = ConvShape(1, 1, 2100, 2100, 1, 1, 1)

    def reference(*_):
        raise AssertionError("the reference was computed")

    monkeypatch.setattr(runner, "_seeded_reference", reference)
    for engine in ("emulator", "cpu"):
        expected = RuleError if engine == "emulator" else AssertionError
        with pytest.raises(expected) as refused:
            compare(RUNGS[:1], shape, engine=engine, measure=False)
        if engine == "emulator":
            assert str(refused.value).startswith("conv/direct: ")
            assert "4,410,112 threads; the emulator runs at most 4,194,304 of a launch" in str(refused.value)


def test_rung_without_memory_is_reported_and_the_others_run(monkeypatch):
    """im2col's columns do not fit in memory; direct convolution has none."""
    shape = ConvShape(1, 4, 32, 32, 4, 5, 5, pad=2)
    names = ["conv/direct", "conv/im2col-gemm"]
    direct_bytes, im2col_bytes = (find(n).build(shape, find(n).default_tiles).nbytes() for n in names)
    free = 20 * direct_bytes
    assert im2col_bytes > free / 2
    monkeypatch.setattr(engines.load("cpu"), "free_bytes", lambda: free)
    refused_calls = []
    (result,) = compare(
        names, shape, engine="cpu", measure=False, refused=lambda *arguments: refused_calls.append(arguments)
    )
    assert result.rung == "conv/direct"
    message = f"conv/im2col-gemm needs {im2col_bytes:,} bytes of memory beside the others, {free:,} bytes are free"
    assert refused_calls == [("conv/im2col-gemm", message)]
    with pytest.raises(RuleError, match="bytes of memory for the cpu engine"):
        compare(names, shape, engine="cpu", measure=False)
    monkeypatch.setattr(engines.load("cpu"), "free_bytes", lambda: direct_bytes)
    with pytest.raises(RuleError, match="bytes of memory for the cpu engine"):
        compare(names, shape, engine="cpu", measure=False, refused=lambda *arguments: refused_calls.append(arguments))
    assert len(refused_calls) == 1


def test_tile_sizes_that_numpy_does_not_use_are_no_other_computation():
    rung = conv_ladder.LADDER.rung("conv/im2col-gemm")
    sets = [{"BLOCK": block, "TILE": tile} for block in (256, 64) for tile in (16, 8)]
    assert rung.distinct(sets, "cpu") == sets[:2] and rung.distinct(sets, "cuda") == sets
