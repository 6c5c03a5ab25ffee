"""The ladders of a fully connected layer without a GPU: any shape and tile sizes, races, faults, rules, cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu, emulator
from kernels.ladders import ladder_of
from kernels.linear import ladder as linear
from kernels.model.program import WORKSPACE
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees, by_output
from kernels.runner import inputs_of, run
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

OURS = tuple(rung for rungs in linear.OURS.values() for rung in rungs)
RUNGS = {rung.name: rung for ladder in linear.LADDERS for rung in ladder.rungs}
ENGINES = (emulator, cpu)
WITH_CPU = [name for name, rung in RUNGS.items() if "cpu" in rung.engines]
SMALL = linear.SMALL
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))


def of(name: str, *size: int):
    """Returns the shape of a rung's ladder."""
    return ladder_of(name).shape(*size)


def own(name: str, tiles: dict[str, int]) -> dict[str, int]:
    """Returns those of `tiles` that a rung has."""
    return {key: value for key, value in tiles.items() if key in RUNGS[name].tiles}


# -- results -------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
@settings(max_examples=3)
@given(data=st.data())
def test_both_engines_agree_with_the_reference_at_any_shape_and_tile_sizes(rung, data):
    shape = of(rung.name, *data.draw(sizes))
    tiles = data.draw(st.sampled_from(rung_runs.legal(rung, shape)))
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, rung, shape, tiles)


@pytest.mark.parametrize("name", WITH_CPU)
@settings(max_examples=3)
@given(size=sizes)
def test_every_rung_at_small_tile_sizes(name, size):
    tiles = own(name, SMALL | {"SPLITS": 2, "BLOCK": 8})
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, RUNGS[name], of(name, *size), tiles)


@pytest.mark.parametrize("name", WITH_CPU)
@pytest.mark.parametrize("size", [(33, 65, 70), (1, 100, 7), (100, 1, 9)], ids=str)
def test_several_tiles_and_thin_matrices(name, size):
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, RUNGS[name], of(name, *size), own(name, SMALL | {"BLOCK": 8}))


@every("name", WITH_CPU)
def test_whole_numbers_are_exact(name):
    """Sums of small whole numbers have no rounding: every term is there once."""
    shape = of(name, 19, 23, 21)
    inputs = inputs_of(ladder_of(name), shape, RUNGS[name].build(shape, RUNGS[name].default_tiles))
    inputs = {key: np.rint(3 * array) for key, array in inputs.items()}
    for engine in ENGINES:
        tiles = own(name, SMALL | {"SPLITS": 2, "BLOCK": 8})
        outputs = rung_runs.verified_outputs(engine, RUNGS[name], shape, tiles, inputs)
        expected = by_output(ladder_of(name).reference(shape, **inputs), tuple(outputs))
        for key, out in outputs.items():
            np.testing.assert_array_equal(out, expected[key][0])


def test_more_parts_than_terms_leave_empty_parts():
    for name in ("linear/split", "linear-dinput/split", "linear-dweight/split"):
        rung_runs.verified_outputs(emulator, RUNGS[name], of(name, 3, 3, 3), SMALL | {"SPLITS": 8})


def test_parts_change_the_workspace_only():
    rung = RUNGS["linear-dweight/split"]
    shape = of(rung.name, 50, 20, 30)
    for splits in (2, 8):
        program = rung.build(shape, rung.check(shape, {"SPLITS": splits}))
        assert program.nbytes(WORKSPACE) == 4 * splits * (20 * 30 + 20)


# -- races, faults -------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
def test_warp_order_changes_nothing_and_no_races(rung):
    tiles = own(rung.name, SMALL | {"SPLITS": 2, "BLOCK": 8})

    def outputs(options):
        found = rung_runs.verified_outputs(emulator, rung, of(rung.name, 40, 37, 45), tiles, options=options)
        return np.concatenate([array.ravel() for array in found.values()])

    rung_runs.same_in_any_order(outputs)


FAULTS = {  # what is wrong: (rung, which launch, original code, faulty code)
    "W not transposed": ("linear/naive", 0, "W[(size_t)n * K + k]", "W[(size_t)k * N + n]"),
    "the barrier left out": ("linear/tile", 0, "    __syncthreads();\n", ""),
    "the oldest tile not awaited": (
        "linear/tile",
        0,
        "read_stage = 0, fill_stage = STAGES - 1",
        "read_stage = 1, fill_stage = 0",
    ),
    "zeros not written beyond k": ("linear/split", 0, "k < k_left", "true"),
    "a part left out": ("linear/split", 1, "split < SPLITS", "split < SPLITS - 1"),
    "columns beyond the end stored": (
        "linear-dinput/tile",
        0,
        "row >= rows || col >= cols) return;\n  out",
        "row >= rows) return;\n  out",
    ),
    "the column sums of every block": ("linear-dweight/tile", 0, "m += BK) {", "m += 2 * BK) {"),
    "parts of db exchanged": ("linear-dweight/split", 0, "db[(size_t)blockIdx.z * N + n]", "db[n]"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_kernel_is_detected(fault):
    name, nth, right, wrong = FAULTS[fault]
    rung, shape = RUNGS[name], of(name, 42, 39, 45)
    tiles = rung.check(shape, own(name, SMALL | {"SPLITS": 2, "BLOCK": 8}))
    program = rung.build(shape, tiles)
    inputs = inputs_of(ladder_of(name), shape, program)
    memory = rung_runs.memory_of(program, inputs)
    races = []
    for n, step in enumerate(program.steps):
        change = rung_runs.replace_once(wrong, right) if n == nth else lambda text: text
        launched = rung_runs.relaunched(step, change, memory)
        if launched is None:
            return
        races += launched.races
    names = tuple(b.name for b in program.outputs)
    expected = by_output(ladder_of(name).reference(shape, **inputs), names)
    assert races or not all(agrees(memory.array(key), *expected[key], rung.tolerance) for key in names)


# -- rules, cost -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
def test_each_choice_is_legal(rung):
    rung_runs.each_choice_is_legal(rung, of(rung.name, 200, 300, 100))


@needs_nvrtc
@settings(max_examples=8)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    rung = data.draw(st.sampled_from(OURS))
    shape = of(rung.name, 5, 7, 9)
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if not any(rung.rules(shape, tiles)):
        rung_runs.verified_outputs(emulator, rung, shape, tiles)
    else:
        assert all("got" in rule for rule in rung.rules(shape, tiles))


@pytest.mark.parametrize("name", ["linear/tile", "linear-dinput/split", "linear-dweight/naive"])
def test_a_matrix_too_large_names_its_rule(name):
    size = (1, 2**31 - 1, 1) if name == "linear-dweight/naive" else (2**31 - 1, 1, 1)
    assert any("grid.y" in rule for rule in RUNGS[name].rules(of(name, *size), RUNGS[name].default_tiles))


@pytest.mark.parametrize("text", ["M=2,N=3", "M=0,N=3,K=4", "M=2,N=x,K=1", "M=2,N=3,K=1,d=4"])
def test_malformed_shapes_are_refused(text):
    for ladder in linear.LADDERS:
        with pytest.raises(ShapeError):
            ladder.parse(text)


def test_the_three_products_have_the_same_work():
    shapes = [ladder.shape(3, 5, 7) for ladder in linear.LADDERS]
    assert {shape.macs for shape in shapes} == {105}
    assert [shape.flops - 210 for shape in shapes] == [15, 0, 15]


def test_one_launch_gives_both_gradients_of_the_parameters():
    """db costs no read: dy and x are copied as often as the blocks of the other side need them."""
    rung, shape = RUNGS["linear-dweight/tile"], of("linear-dweight/tile", 64, 64, 96)
    assert len(rung.build(shape, rung.check(shape, SMALL)).steps) == 1
    result = run(rung.name, shape, engine="emulator", tiles=SMALL, measure=False)
    blocks_of_n, blocks_of_k = 64 // SMALL["BM"], 96 // SMALL["BN"]
    assert result.counters.total["bytes_ld"] == 4 * 64 * (64 * blocks_of_k + 96 * blocks_of_n)
