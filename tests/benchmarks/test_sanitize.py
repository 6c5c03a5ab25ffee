"""The launches for compute-sanitizer: every kernel that is compiled ahead, in few launches; a wrong result is an error."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from benchmarks import sanitize
from kernels import precompile, sources
from kernels.engines.emulator.compiler import compile as compiler
from kernels.ladders import LADDERS
from tests.helpers.offenders import every

NAMES = tuple(sanitize.RUNS)
SEVERAL_GPUS = "collectives/"  # benchmarks/collectives.py launches these on all GPUs at once
MAX_LAUNCHES = 160  # of a group: racecheck runs 150 within a minute


def of_any_d(kernels):
    """Returns the kernels without DP, the padded head size of attention: it depends on the shape, not on tile sizes."""
    return {(source, tuple(pair for pair in defines if pair[0] != "DP")) for source, defines in kernels}


def test_launches_cover_every_kernel_at_every_set_of_tile_sizes():
    launched = {(c.launch.source, c.launch.defines) for name in NAMES for c in sanitize.launches(name)}
    precompiled = {
        (source, defines) for source, _, defines in precompile.kernels() if not source.startswith(SEVERAL_GPUS)
    }
    assert not of_any_d(precompiled) - of_any_d(launched)
    files = {path for path in sources.paths() if path.endswith(".cu")}
    assert {f for f in files if not f.startswith(("teaching/", "machine/", SEVERAL_GPUS))} <= {
        source for source, _ in launched
    }


@every("name", NAMES)
def test_launches_are_few_and_small(name):
    chosen = sanitize.launches(name)
    assert 0 < len(chosen) <= MAX_LAUNCHES
    assert all(max(case.launch.grid) <= 528 for case in chosen)


def test_every_rung_of_the_project_runs():
    run_rungs = {rung.name for name in NAMES for rung, _, _ in sanitize.runs(name)}
    ours = {
        rung.name
        for ladder in LADDERS.values()
        for rung in ladder.rungs
        if "cuda" in rung.engines and "cuda" in ladder.engines and not rung.library
    }
    assert run_rungs == ours


def test_wrong_result_is_an_error(monkeypatch, capsys):
    correct, *_ = sanitize.launches("memory")

    def off_by_one(*args):
        correct.launch.cpu(*args)
        args[2][0, 0] += 1

    wrong = dataclasses.replace(correct, launch=dataclasses.replace(correct.launch, cpu=off_by_one))
    monkeypatch.setattr(sys, "argv", ["sanitize.py", "--emulator", "memory"])
    monkeypatch.setattr(sanitize, "launches", lambda name, rungs: [correct])
    assert sanitize.main() == 0
    monkeypatch.setattr(sanitize, "launches", lambda name, rungs: [correct, wrong])
    assert sanitize.main() == 1
    assert "WRONG add-vector_add" in capsys.readouterr().out


@pytest.mark.skipif(compiler.version() is None, reason="NVRTC is not installed here")
def test_race_is_an_error():
    """The tiled product without its barriers."""
    case = next(c for c in sanitize.launches("gemm") if c.launch.source.endswith("03_shared_tile.cu"))
    assert not sanitize.in_emulator(case)
    text = sources.translation_unit(case.launch.source)
    broken = text.replace("__syncthreads();", "")
    assert broken != text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "translation_unit", lambda path: broken)
        assert "race" in sanitize.in_emulator(case)


def test_unknown_ladder_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sanitize.py", "sorting"])
    with pytest.raises(SystemExit):
        sanitize.main()
    assert f"no ladder sorting; there are: {', '.join(NAMES)}" in capsys.readouterr().err


def test_rungs_without_a_launch_are_an_error(monkeypatch, capsys):
    """Else compute-sanitizer would find no error, because nothing ran."""
    monkeypatch.setattr(sys, "argv", ["sanitize.py", "--emulator", "--rungs", "gemm/naive", "memory", "gemm"])
    with pytest.raises(SystemExit):
        sanitize.main()
    assert "memory has none of these rungs; gemm has" in capsys.readouterr().err
