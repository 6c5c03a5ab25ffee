"""Cases in a file: a rung, a shape and tile sizes in a line, measured with the rungs beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.cases import Case, read_cases
from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.sweep import Sweep

PRESETS = [(ladder, preset.shape) for ladder in LADDERS.values() for preset in ladder.presets.values()]


@given(st.data())
def test_a_printed_case_is_read_again(data):
    ladder, shape = data.draw(st.sampled_from(PRESETS))
    rung = data.draw(st.sampled_from(ladder.rungs))
    tiles = {name: data.draw(st.sampled_from(sorted(choices))) for name, choices in rung.tiles.items()}
    case = Case(rung.name, shape, tiles)
    if any(rung.rules(shape, tiles)):
        with pytest.raises(RuleError):
            read_cases(str(case))
    else:
        assert read_cases(f"{case}\n\n{case}") == [case, case]


def test_sweep_measures_a_case_beside_its_ladder():
    text = "gemm/naive; M=16,N=16,K=16; BLOCK=8\ngemm/shared-tile; M=16,N=16,K=16\n"
    default, own = Sweep("cuda", cases=read_cases(text)).groups()
    assert {"gemm/naive", "gemm/shared-tile", "gemm/warp-tile"} <= set(default.rungs) and not default.tiles
    assert (own.rungs, own.tiles, str(own.shape)) == (("gemm/naive",), {"BLOCK": 8}, str(default.shape))


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("gemm/naive", RuleError),
        ("gemm/nothing; M=1,N=1,K=1", RuleError),
        ("gemm/naive; M=0,N=1,K=1", ShapeError),
        ("gemm/naive; M=1,N=1,K=1; BLOCK=7", RuleError),
        ("gemm/naive; M=1,N=1,K=1; BLOCK=8; BLOCK=8", RuleError),
    ],
)
def test_malformed_line_is_an_error(line, error):
    with pytest.raises(error):
        read_cases(line)
