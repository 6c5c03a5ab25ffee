"""The ladders of an embedding without a GPU: any shape and tile sizes, repeated tokens, races, faults, rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.embedding import ladder as embedding
from kernels.embedding.shape import TOKENS
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options, device_memory
from kernels.ladders import ladder_of
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees
from kernels.runner import inputs_of, run
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

OURS = (*embedding.FORWARD_RUNGS, *embedding.BACKWARD_RUNGS)
RUNGS = {rung.name: rung for rung in OURS}
ENGINES = (emulator, cpu)
SORTED = ("embedding-backward/sorted", "embedding-backward/runs")
SMALL = {"BLOCK": 32, "CHUNK": 4, "ROWS": 4, "WARPS": 1, "LOADS": 1}
sizes = st.tuples(st.integers(1, 50), st.integers(1, 20), st.integers(1, 40), st.sampled_from(TOKENS))


def of(name: str, *size):
    """Returns the shape of a rung's ladder."""
    return ladder_of(name).shape(*size)


def own(name: str, tiles: dict[str, int]) -> dict[str, int]:
    return {key: value for key, value in tiles.items() if key in RUNGS[name].tiles}


# -- results -------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(data=st.data())
def test_both_engines_agree_with_the_reference_at_any_shape_and_tile_sizes(name, data):
    shape, rung = of(name, *data.draw(sizes)), RUNGS[name]
    tiles = data.draw(st.sampled_from(rung_runs.legal(rung, shape)))
    for engine in ENGINES:
        rung_runs.verified_output(engine, rung, shape, tiles)


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(size=sizes)
def test_every_rung_at_small_tile_sizes(name, size):
    for engine in ENGINES:
        rung_runs.verified_output(engine, RUNGS[name], of(name, *size), own(name, SMALL))


ADVERSARIAL = {
    "one token": lambda m, V: 0 * m,
    "the last token": lambda m, V: 0 * m + V - 1,
    "two in turn": lambda m, V: m % 2 * (V - 1),
    "each once": lambda m, V: m % V,
    "falling": lambda m, V: (len(m) - 1 - m) * V // len(m),
    "runs as long as a chunk": lambda m, V: m // 4 % V,
}


@every("name", RUNGS)
@every("kind", ADVERSARIAL)
def test_repeated_tokens_are_right(name, kind):
    shape = of(name, 33, 40, 5)
    program = RUNGS[name].build(shape, RUNGS[name].default_tiles)
    inputs = dict(inputs_of(ladder_of(name), shape, program))
    inputs["tokens"] = ADVERSARIAL[kind](np.arange(33), 40).astype(np.int32)
    for engine in ENGINES:
        rung_runs.verified_output(engine, RUNGS[name], shape, own(name, SMALL), inputs)


@pytest.mark.parametrize("name", RUNGS)
def test_whole_numbers_are_exact(name):
    shape = of(name, 50, 6, 9)
    inputs = dict(inputs_of(ladder_of(name), shape, RUNGS[name].build(shape, RUNGS[name].default_tiles)))
    inputs = {key: a if a.dtype.kind == "i" else np.rint(9 * a) for key, a in inputs.items()}
    ref, _ = ladder_of(name).reference(shape, **inputs)
    for engine in ENGINES:
        out, _ = rung_runs.computed(engine, RUNGS[name], shape, inputs=inputs)
        np.testing.assert_array_equal(out, ref)


def test_a_token_that_does_not_occur_has_no_gradient():
    for name in ("embedding-backward/atomics", *SORTED):
        shape = of(name, 3, 70, 5)
        inputs = {"tokens": np.array([2, 69, 2], np.int32), "dy": np.ones((3, 5), np.float32)}
        for tiles in ({}, own(name, SMALL)):
            dtable = rung_runs.verified_output(emulator, RUNGS[name], shape, tiles, inputs)
            assert set(np.flatnonzero(dtable.any(axis=1))) == {2, 69} and (dtable[2] == 2).all()


# -- order, races, faults --------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", [name for name in RUNGS if name != "embedding-backward/atomics"])
def test_warp_order_changes_nothing_and_no_races(name):
    shape, tiles = of(name, 90, 9, 40), own(name, SMALL | {"CHUNK": 256, "BLOCK": 128})
    rung_runs.same_in_any_order(
        lambda options: rung_runs.verified_output(emulator, RUNGS[name], shape, tiles, options=options)
    )


@needs_nvrtc
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SORTED)
def test_each_launch_of_the_sort_may_be_repeated(name, engine):
    """Launches are timed one by one, each many times in a row."""
    ladder, rung, shape = ladder_of(name), RUNGS[name], of(name, 9, 5, 3)
    program = rung.build(shape, own(name, SMALL))
    inputs = inputs_of(ladder, shape, program)
    repeated = replace(program, steps=tuple(step for step in program.steps for _ in range(3)))
    session = engine.open(repeated, inputs)
    ref, scale = ladder.reference(shape, **inputs)
    assert agrees(session.verify_run(), ref, scale, rung.tolerance)


def test_the_order_of_atomic_additions_changes_the_rounding():
    """What the sorted rungs avoid. 1 added to 2^24 is lost, 1 added to 1 is not."""
    shape = of("embedding-backward/atomics", 64, 1, 1)
    dy = np.where(np.arange(64) < 32, 1, np.where(np.arange(64) == 63, 2.0**24, 0))[:, None]
    inputs = {"tokens": np.zeros(64, np.int32), "dy": dy.astype(np.float32)}

    def sums(name: str) -> set[float]:
        options = [Options(order=order) for order in ("forward", "reversed")]
        outs = [rung_runs.computed(emulator, RUNGS[name], shape, {}, inputs, each)[0] for each in options]
        return {float(out[0, 0]) for out in outs}

    assert sums("embedding-backward/atomics") == {2.0**24, 2.0**24 + 32}
    assert all(sums(name) == {2.0**24 + 32} for name in SORTED)


@needs_nvrtc
def test_the_scan_has_no_race_between_its_turns():
    """There are more tokens than the block adds up in one turn."""
    shape = of(SORTED[0], 8, embedding.SCAN["BLOCK"] * embedding.SCAN["PER"] + 5, 1)
    program = RUNGS[SORTED[0]].build(shape, own(SORTED[0], SMALL))
    (scan,) = (step for step in program.steps if step.entry == "first_positions")
    totals = np.arange(shape.V, dtype=np.int32) % 3
    memory = device_memory({"totals": totals, "first": np.zeros_like(totals)}, ["totals"])
    run = rung_runs.relaunched(scan, lambda text: text, memory)
    assert run and not run.races
    np.testing.assert_array_equal(memory.array("first"), np.cumsum(totals) - totals)


FAULTS = {  # what is wrong: (rung, which launch, original code, faulty code)
    "the next token's row": ("embedding/elements", 0, "(size_t)tokens[m] * d", "(size_t)(tokens[m] ^ 1) * d"),
    "stored instead of added": (
        "embedding-backward/atomics",
        1,
        "atomicAdd(&dtable[(size_t)tokens[m] * d + column], dy[i])",
        "dtable[(size_t)tokens[m] * d + column] = dy[i]",
    ),
    "counts not cleared": ("embedding-backward/sorted", 0, "counts[i] = 0", "counts[i] = 1"),
    "the chunk's barrier": ("embedding-backward/sorted", 1, "  __syncthreads();\n", ""),
    "the last row left out": ("embedding-backward/sorted", 5, "i < end; ++i", "i < end - 1; ++i"),
    "every run taken as whole": ("embedding-backward/runs", 5, "totals[token[i]] <= rows - i", "totals[token[i]] > 0"),
    "the last part left out": ("embedding-backward/runs", 6, "i <= last / ROWS", "i < last / ROWS"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_kernel_is_detected(fault):
    name, nth, right, wrong = FAULTS[fault]
    rung, shape = RUNGS[name], of(name, 90, 200, 37)
    chunk = 256 if "barrier" in fault else 32  # a barrier matters among several warps
    tiles = rung.check(shape, own(name, SMALL | {"CHUNK": chunk}))
    program = rung.build(shape, tiles)
    inputs = inputs_of(ladder_of(name), shape, program)
    rung_runs.assert_fault_in_launch_is_detected(rung, shape, program, inputs, nth, right, wrong)


# -- rules ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
def test_each_choice_is_legal(rung):
    rung_runs.each_choice_is_legal(rung, of(rung.name, 20, 30, 40))


@pytest.mark.parametrize(
    ("name", "size", "rule"),
    [
        ("embedding/elements", (2**31 - 1, 1, 2**31 - 1), "grid.x"),
        ("embedding/rows", (2**31 - 1, 1, 1), "M must stay below"),
        ("embedding-backward/atomics", (1, 2**31 - 1, 2**20), "grid.x"),
        ("embedding-backward/runs", (1, 2**31 - 1, 1), "V must stay below"),
    ],
)
def test_a_shape_too_large_names_its_rule(name, size, rule):
    assert any(rule in sentence for sentence in RUNGS[name].rules(of(name, *size), RUNGS[name].default_tiles))


@pytest.mark.parametrize("text", ["M=2,V=3", "M=0,V=3,d=4", "M=2,V=x,d=1", "M=2,V=3,d=1,tokens=rare"])
def test_malformed_shapes_are_refused(text):
    for ladder in embedding.LADDERS:
        with pytest.raises(ShapeError):
            ladder.parse(text)


def test_tokens_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"tokens must hold whole numbers in 0 .. 4"):
        run("embedding/rows", of("embedding/rows", 2, 5, 3), {"tokens": np.array([0, 5])}, engine="cpu")


def test_given_tokens_are_kept_whatever_the_distribution():
    shape = of("embedding/rows", 3, 9, 2, "equal")
    table = np.arange(18.0).reshape(9, 2)
    out = run("embedding/rows", shape, {"tokens": np.array([4, 0, 8]), "table": table}, engine="cpu", measure=False)
    np.testing.assert_array_equal(out.output, table[[4, 0, 8]])
