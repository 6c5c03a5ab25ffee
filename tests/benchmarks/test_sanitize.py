"""What compute-sanitizer is shown: every kernel that is compiled ahead, in few launches; a wrong result is an error."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from benchmarks import sanitize
from kernels import precompile, sources
from kernels.engines.emulator.compiler import compile as compiler
from kernels.ladders import LADDERS

NAMES = tuple(sanitize.ASKED)
MOST = 150  # of a ladder: what racecheck runs within a minute


def of_any_d(kernels):
    """Without DP, the head size of attention in whole steps: no tile size, but of the shape."""
    return {(source, tuple(pair for pair in defines if pair[0] != "DP")) for source, defines in kernels}


def test_every_kernel_at_every_set_of_tile_sizes_is_there():
    shown = {(c.launch.source, c.launch.defines) for name in NAMES for c in sanitize.launches(name)}
    ahead = {(source, defines) for source, _, defines in precompile.kernels()}
    assert not of_any_d(ahead) - of_any_d(shown)
    files = {path for path in sources.paths() if path.endswith(".cu")}
    assert {f for f in files if not f.startswith(("teaching/", "machine/"))} <= {
        source for source, _ in shown
    }


@pytest.mark.parametrize("name", NAMES)
def test_launches_are_few_and_small(name):
    chosen = sanitize.launches(name)
    assert 0 < len(chosen) <= MOST
    assert all(max(case.launch.grid) <= 512 for case in chosen)


def test_every_rung_of_ours_is_asked():
    there = {rung.name for name in NAMES for rung, _, _ in sanitize.asked(name)}
    ours = {
        rung.name
        for ladder in LADDERS.values()
        for rung in ladder.rungs
        if "cuda" in rung.engines and "cuda" in ladder.engines and not rung.library
    }
    assert there == ours


def test_a_wrong_result_is_an_error(monkeypatch, capsys):
    right, *_ = sanitize.launches("memory")

    def off_by_one(*args):
        right.launch.twin(*args)
        args[2][0, 0] += 1

    wrong = dataclasses.replace(right, launch=dataclasses.replace(right.launch, twin=off_by_one))
    monkeypatch.setattr(sys, "argv", ["sanitize.py", "--emulator", "memory"])
    monkeypatch.setattr(sanitize, "launches", lambda name: [right])
    assert sanitize.main() == 0
    monkeypatch.setattr(sanitize, "launches", lambda name: [right, wrong])
    assert sanitize.main() == 1
    assert "WRONG add-vector_add" in capsys.readouterr().out


@pytest.mark.skipif(compiler.version() is None, reason="NVRTC is not installed here")
def test_a_race_is_an_error():
    """The tiled product without its barriers."""
    case = next(c for c in sanitize.launches("gemm") if c.launch.source.endswith("03_shared_tile.cu"))
    assert not sanitize.in_emulator(case)
    text = sources.translation_unit(case.launch.source)
    broken = text.replace("__syncthreads();", "")
    assert broken != text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "translation_unit", lambda path: broken)
        assert "race" in sanitize.in_emulator(case)


def test_a_ladder_that_is_not_there_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sanitize.py", "pooling"])
    with pytest.raises(SystemExit):
        sanitize.main()
    assert f"no ladder pooling; there are: {', '.join(NAMES)}" in capsys.readouterr().err
