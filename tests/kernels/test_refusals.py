"""Requests that break a rule, from a shell and from Python: always a sentence that names the rule, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels import engines, sweep
from kernels.__main__ import main
from kernels.attention.shape import AttentionShape
from kernels.conv.shape import ConvShape
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.machine.status import Status
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.model.rules import thread_rules
from kernels.model.shape import ShapeError
from kernels.runner import compare, run
from tests.helpers.offenders import every

ROOT = Path(__file__).parents[2]
TOY = ConvShape(1, 1, 8, 8, 2, 3, 3)
RUN = ["run", "conv/direct", "--shape=N=1,C=1,H=8,W=8,K=2,R=3,S=3", "--engine=emulator"]
HOSTILE = [
    "", "²", "１", "-1", "0", "1.5", "nan", "inf", "-inf", "1e400", "9" * 5000, "x", "\0", "\n", "\udcff", "=", ",", ":",
    "..", "{", "struct{", "%s", "--", "/", ".", "1,1", "4,²", "2147483648", "0x10", "TILE=²", "TILE=1,TILE=1", "N=1",
    "M=²,N=1,K=1", "conv/direct", "conv", "probe", "cpu", "cold", "f32:4:zeros", "f32:2:1..0", "k=i32:1", "a<b>", "sm_10",
]  # fmt: skip


def error_of(argv: list[str], capsys) -> str:
    """Returns the error output of a command that must end with code 2."""
    try:
        code = main(argv)
    except SystemExit as e:  # argparse's own
        code = e.code
    out, err = capsys.readouterr()
    assert code == 2 and not out
    return err


# -- from a shell ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape=N=²,C=1,H=8,W=8,K=2,R=3,S=3"], "N must be a whole number, got '²'"),
        (["--tiles=BLOCK=²"], "tiles are NAME=NUMBER, got 'BLOCK=²'"),
        (["--tiles=BLOCK=64,BLOCK=128"], "the tile size BLOCK is given twice"),
        (["--seed=-1"], "seed must be a whole number, 0 or more, got -1"),
        (["--seed=²"], "invalid int value: '²'"),
        (["--engine=gpu"], "no engine 'gpu'; there are: cuda, cpu, emulator"),
        (["--mode=warm"], "invalid choice: 'warm'"),
        (["--tiles=--"], "-- is no value"),
    ],
)
def test_run_that_breaks_a_rule(options, message, capsys):
    assert message in error_of([*RUN, *options], capsys)


@pytest.mark.parametrize("ladder", LADDERS)
def test_numbers_of_every_shape_are_in_ascii(ladder, capsys):
    first = LADDERS[ladder].rungs[0].name
    assert "got '²'" in error_of(["run", first, "--shape", SHAPES[ladder]], capsys)


SHAPES = {
    "conv": "N=²", "gemm": "M=²", "gemm-8bit": "M=²", "loops": "M=²", "attention": "N=²", "attention-backward": "N=²",
    "attention-loops": "N=²", "softmax": "M=²", "fusion": "N=²", "add": "M=²", "stride": "n=²",
    "banks": "n=²", "branch": "n=²", "layout": "N=²", "relu": "N=²", "relu-backward": "N=²", "bias": "N=²",
    "gelu": "N=²", "gelu-backward": "N=²",
    "bias-backward": "N=²", "residual": "N=²", "residual-backward": "N=²", "sgd": "lr=²", "adam": "step=²",
    "cross-entropy": "M=²", "cross-entropy-backward": "M=²", "cross-entropy-step": "M=²",
    "batch-norm": "N=²", "batch-norm-inference": "N=²", "batch-norm-backward": "N=²", "layer-norm": "M=²",
    "layer-norm-backward": "M=²", "rms-norm": "M=²", "rms-norm-backward": "M=²", "linear": "M=²",
    "linear-dinput": "M=²", "linear-dweight": "M=²", "max-pool": "N=²", "max-pool-backward": "N=²",
    "avg-pool": "N=²", "avg-pool-backward": "N=²", "global-avg-pool": "N=²",
    "global-avg-pool-backward": "N=²", "embedding": "M=²", "embedding-backward": "M=²",
    "conv-dinput": "N=²", "conv-dweight": "N=²", "conv-transpose": "N=²", "conv-fp16": "N=²", "fusion-fp16": "N=²",
    "attention-lse": "N=²",
    "split-heads": "N=²", "merge-heads": "N=²", "instruction-rate": "turns=²",
}  # fmt: skip


@pytest.fixture
def recording(monkeypatch):
    """Make the test fail if `record` measures anything."""
    monkeypatch.setattr(sweep, "compare", lambda *args, **kwargs: pytest.fail("this was measured"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seconds=-1"], "--seconds must be a number above 0, got -1"),
        (["--seconds=0"], "--seconds must be a number above 0, got 0"),
        (["--seconds=nan"], "--seconds must be a number above 0, got nan"),
        (["--seconds=inf"], "--seconds must be a number above 0, got inf"),
        (["--batches=²"], "a batch is a whole number above 0, got '²'"),
        (["--batches=0"], "a batch is a whole number above 0, got '0'"),
        (["--modes=warm"], "no mode 'warm'"),
        (["--presets=none"], "no preset 'none'"),
        (["--engine=emulator"], "the emulator engine counts"),
    ],
)
def test_recording_that_breaks_a_rule(options, message, recording, tmp_path, capsys):
    assert message in error_of(["record", f"--out={tmp_path / 'r.jsonl'}", "--engine=cpu", *options], capsys)
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize("content", [bytes(range(256)), b"hello", b"hello\n", b'{"rung": 1}\n{"rung": 2}\n', b"\n[]"])
def test_recording_leaves_another_kind_of_file_unchanged(content, recording, tmp_path, capsys):
    out = tmp_path / "photo"
    out.write_bytes(content)
    assert str(out) in error_of(["record", f"--out={out}", "--engine=cpu"], capsys)
    assert out.read_bytes() == content


def test_recording_into_a_folder_or_on_a_missing_engine(recording, tmp_path, capsys, monkeypatch):
    assert str(tmp_path) in error_of(["record", f"--out={tmp_path}", "--engine=cpu"], capsys)
    unavailable = Status(False, "no GPU in this machine")
    monkeypatch.setattr(engines.load("cpu"), "status", lambda: unavailable)
    message = "engine 'cpu' cannot run here: no GPU in this machine"
    assert message in error_of(["record", f"--out={tmp_path / 'r.jsonl'}", "--engine=cpu"], capsys)


COMMANDS = {
    "run": (["conv/direct"], ["--shape", "--engine", "--tiles", "--mode", "--seed"]),
    "emulate": (
        ["{k.cu}", "k"],
        ["--grid", "--block", "--arg", "--constant", "--shared", "--seed", "-D", "-I", "-arch", "-std", "--out"],
    ),
    "record": ([], ["--out", "--engine", "--presets", "--cases", "--batches", "--modes", "--seconds", "--commit"]),
    "list": ([], []),
}
DEFAULTS = {"--grid": "1", "--block": "1", "--shape": RUN[2][8:], "--out": "{out}", "--engine": "emulator"}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_command_line_ends_in_a_traceback(data, recording, tmp_path, capsys, monkeypatch):
    """Any option missing, default or hostile: the command succeeds or prints a message."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text("__constant__ int k;\n__global__ void a(float* x) { x[k] = 1; }\n")
    command = data.draw(st.sampled_from(list(COMMANDS)))
    arguments, options = COMMANDS[command]
    hostile = st.sampled_from([*HOSTILE, str(tmp_path), str(tmp_path / "k.cu")])
    argv = [command, *(data.draw(st.just(argument) | hostile) for argument in arguments)]
    for option in options:
        value = (
            data.draw(st.none() | hostile) if option not in DEFAULTS else data.draw(st.just(DEFAULTS[option]) | hostile)
        )
        if value is not None:
            argv += [f"{option}={value}"] if option not in ("-D", "-I") else [f"{option}{value}"]
    argv = [argument.replace("{k.cu}", "k.cu").replace("{out}", str(tmp_path / "made")) for argument in argv]
    if command != "emulate" and "--engine=emulator" not in argv:  # nothing is measured here
        argv += ["--engine=emulator"] if command != "list" else []
    try:
        code = main(argv)
    except SystemExit as e:
        code = e.code
    err = capsys.readouterr().err
    assert code == 0 or (code == 2 and err.strip().removeprefix("python -m kernels:").strip())


def test_closed_output_and_ascii_terminal():
    """`list | head -1`, and a terminal that has only ASCII."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    completed = subprocess.run(
        [sys.executable, "-m", "kernels", "list"], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert (
        completed.returncode == 0
        and not completed.stderr
        and b"16 multiplications instead of 36 for 2?2" in completed.stdout
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "kernels", "list", "--json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child.stdout.close()
    assert child.stderr.read() == b"" and child.wait() == 1
    child.stderr.close()


# -- from Python -----------------------------------------------------------------------------------
@every(
    ("rung", "arguments", "error", "message"),
    [
        ("conv/direct", {"shape": None}, ShapeError, "conv/direct takes a shape of type ConvShape, got None"),
        ("conv/direct", {"shape": GemmShape(4, 4, 4)}, ShapeError, "takes a shape of type ConvShape, got GemmShape"),
        ("conv/direct", {"shape": "toyy"}, ShapeError, "no preset 'toyy' of conv; there are: toy, "),
        ("gemm/naive", {"shape": AttentionShape(1, 1, 4, 4)}, ShapeError, "takes a shape of type GemmShape"),
        (None, {}, RuleError, "a rung is a name"),
        (5, {}, RuleError, "a rung is a name"),
        ("", {}, RuleError, "no ladder ''"),
        ("conv/none", {}, RuleError, "no rung 'conv/none'"),
        ("conv/direct", {"engine": "gpu"}, RuleError, "no engine 'gpu'"),
        ("conv/direct", {"engine": 5}, RuleError, "an engine is a name, got 5"),
        ("conv/direct", {"mode": "warm"}, RuleError, "mode must be one of cold, hot"),
        ("conv/direct", {"mode": None}, RuleError, "mode must be one of cold, hot"),
        ("conv/direct", {"tiles": 5}, RuleError, "tiles is a dict of values by name"),
        ("conv/direct", {"tiles": [("BLOCK", 64)]}, RuleError, "tiles is a dict of values by name"),
        ("conv/direct", {"tiles": {"BLOCK": "64"}}, RuleError, "the tile size BLOCK must be a whole number"),
        ("conv/direct", {"tiles": {"BLOCK": np.zeros(2)}}, RuleError, "the tile size BLOCK must be a whole number"),
        ("conv/direct", {"tiles": {"conv/direct": 64}}, RuleError, "tiles of conv/direct are a dict"),
        ("conv/direct", {"tiles": {5: 64}}, RuleError, "no tile size 5"),
        ("conv/direct", {"inputs": [1]}, RuleError, "inputs is a dict of values by name"),
        ("conv/direct", {"inputs": np.zeros(3)}, RuleError, "inputs is a dict of values by name"),
        ("conv/direct", {"inputs": {"z": 1}}, RuleError, "no input 'z'; there are: x, w"),
        ("conv/direct", {"inputs": {"x": np.zeros((1, 1, 8, 9))}}, RuleError, "input x must have shape"),
        ("conv/direct", {"inputs": {"x": [[1], [2, 3]]}}, RuleError, "input x must be an array of numbers"),
        ("conv/direct", {"inputs": {"x": np.full((1, 1, 8, 8), "a")}}, RuleError, "input x must hold numbers"),
        ("conv/direct", {"inputs": {"x": np.full((1, 1, 8, 8), None)}}, RuleError, "input x must hold numbers"),
        ("conv/direct", {"seed": -1}, RuleError, "seed must be a whole number, 0 or more, got -1"),
        ("conv/direct", {"seed": "1"}, RuleError, "seed must be a whole number"),
        ("conv/direct", {"budget": 5}, RuleError, "budget is a Budget, got 5"),
        ("conv/direct", {"trace": 2}, RuleError, r"conv/direct: the block to trace is one of 0 \.\. 0, got 2"),
        ("conv/direct", {"trace": -1}, RuleError, "trace must be a whole number, 0 or more, got -1"),
        ("conv/direct", {"trace": 0.5}, RuleError, "trace must be a whole number"),
        ("conv/direct", {"trace": True}, RuleError, "trace must be a whole number"),
    ],
)
def test_call_that_breaks_a_rule(rung, arguments, error, message):
    with pytest.raises(error, match=message):
        run(rung, **({"shape": TOY, "engine": "emulator"} | arguments))


@every("rungs", [[], (), None, "conv/direct", {"conv/direct"}, 5, [None]])
def test_compare_requires_a_list_of_names(rungs):
    with pytest.raises(RuleError, match=r"rungs are a list of at least one name|a rung is a name"):
        compare(rungs, TOY, engine="emulator")


def test_every_block_of_a_launch_can_be_traced():
    shape = ConvShape(1, 1, 12, 12, 8, 3, 3)  # 800 outputs, 256 to a block
    traced = [run("conv/direct", shape, engine="emulator", trace=n).trace[0].block for n in range(4)]
    assert traced == [0, 1, 2, 3]
    with pytest.raises(RuleError, match=r"0 \.\. 3, got 4"):
        run("conv/direct", shape, engine="emulator", trace=4)


@every("field", ["seconds", "samples", "min_samples", "warm_up_s"])
@every("value", [-1, float("nan"), float("inf"), None, "1"])
def test_budget_requires_finite_numbers(field, value):
    with pytest.raises(RuleError, match=f"{field} of a budget"):
        Budget(**{field: value})


@every(("threads", "broken"), [(0, 1), (32, 0), (1000, 1), (1024, 0), (1056, 1), (1057, 2)])
def test_a_block_has_whole_warps_and_at_most_1024_threads(threads, broken):
    assert len([*thread_rules("BLOCK", threads)]) == broken


@every("value", [[], {}, None, 5, "fp99", np.zeros(2)])
def test_field_of_a_shape_with_fixed_values(value):
    with pytest.raises(ShapeError, match="dtype must be one of"):
        GemmShape(4, 4, 4, dtype=value)
    with pytest.raises(ShapeError, match="bias must be 0 or 1"):
        ConvShape(1, 1, 8, 8, 2, 3, 3, bias=value)
