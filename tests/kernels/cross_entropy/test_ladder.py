"""The ladders of cross-entropy without a GPU: any shape and tile sizes, hard rows, races, faults, rules, cost, PyTorch's call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.cross_entropy import ladder as ce
from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.engines import cpu, emulator
from kernels.ladders import ladder_of
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees, by_output
from kernels.runner import VerificationError, inputs_of, run, rung_reference
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

OURS = (*ce.FORWARD_RUNGS, *ce.BACKWARD_RUNGS, *ce.STEP_RUNGS)
RUNGS = {rung.name: rung for rung in OURS}
SAFE = [name for name in RUNGS if name != "cross-entropy/unfused"]
ENGINES = (emulator, cpu)
extents = st.tuples(st.integers(1, 5), st.one_of(st.integers(1, 12), st.integers(1, 150)))


def of(name: str, *size: int):
    """Returns the shape of a rung's ladder."""
    return ladder_of(name).shape(*size)


def given_inputs(name: str, shape, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the seeded inputs of a rung with some of them replaced; those derived from others follow."""
    ladder, rung = ladder_of(name), RUNGS[name]
    inputs = dict(inputs_of(ladder, shape, rung.build(shape, rung.default_tiles)))
    inputs |= {key: array.astype(inputs[key].dtype) for key, array in arrays.items() if key in inputs}
    return inputs | (ladder.derive(shape, inputs) if ladder.derive else {})


# -- results -------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(data=st.data())
def test_both_engines_agree_with_the_reference_at_any_shape_and_tile_sizes(name, data):
    shape, rung = of(name, *data.draw(extents)), RUNGS[name]
    tiles = data.draw(st.sampled_from(rung_runs.legal(rung, shape)))
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, rung, shape, tiles)


@pytest.mark.parametrize("name", RUNGS)
def test_long_rows_and_short_ones(name):
    few = {"BLOCK": 32, "LOADS": 1, "SPLITS": 2}
    few = {key: value for key, value in few.items() if key in RUNGS[name].tiles}
    for size, tiles in (((2, 2500), few), ((2, 4096), {}), ((2, 1), {}), ((1, 131), few)):
        for engine in ENGINES:
            rung_runs.verified_outputs(engine, RUNGS[name], of(name, *size), tiles)


HARD = {
    "every logit 0": lambda x: 0 * x,
    "all equal": lambda x: 0 * x + 7,
    "a large mean": lambda x: x + 1e4,
    "a large negative mean": lambda x: x - 1e4,
    "large logits": lambda x: 80 * x,
    "one dominates": lambda x: np.where(np.arange(x.shape[1]) == x.shape[1] // 2, 60, x),
    "rising": lambda x: np.broadcast_to(30.0 * np.arange(x.shape[1]), x.shape),
    "falling": lambda x: np.broadcast_to(-30.0 * np.arange(x.shape[1]), x.shape),
    "the lowest floats": lambda x: np.where(x > 0, x, -3.4e38),
}


@pytest.mark.parametrize("name", SAFE)
def test_hard_rows_are_right(name):
    """Each kind has three rows, with labels before, among and after the groups of four. No row depends on another."""
    x = [hard(np.random.default_rng(5).standard_normal((3, 75))) for hard in HARD.values()]
    shape = of(name, 3 * len(x), 75)
    for columns in ((0, 37, 74), (37, 74, 0), (74, 0, 37)):
        labels = np.tile(columns, len(x))
        inputs = given_inputs(name, shape, x=np.concatenate(x), labels=labels)
        for engine in ENGINES:
            rung_runs.verified_outputs(engine, RUNGS[name], shape, inputs=inputs)


@pytest.mark.parametrize("engine", ["cpu", "emulator"])
def test_a_probability_that_becomes_0_spoils_the_unfused_loss_only(engine):
    """-log(0) is infinite. The kernels that take log(l) alone give the true loss, 200."""
    shape, x = CrossEntropyShape(2, 40), np.zeros((2, 40))
    x[:, 3] = 200
    inputs = {"x": x, "labels": np.full(2, 5)}
    with pytest.raises(VerificationError, match=r"loss of cross-entropy/unfused .*nothing unverified"):
        run("cross-entropy/unfused", shape, inputs, engine=engine, measure=False)
    for name in ("two-pass", "online", "split"):
        result = run(f"cross-entropy/{name}", shape, inputs, engine=engine, measure=False)
        np.testing.assert_allclose(result.outputs["loss"], 200, rtol=1e-6)


def test_a_row_without_weight_has_no_gradient():
    for name in ("cross-entropy-backward/rows", "cross-entropy-step/shared-row"):
        inputs = given_inputs(name, of(name, 3, 9), g=np.array([1, 0, -2]))
        dx = rung_runs.verified_outputs(emulator, RUNGS[name], of(name, 3, 9), inputs=inputs)["dx"]
        assert not dx[1].any() and dx[0].any() and dx[2].any()


def test_gradients_of_a_row_sum_to_0():
    name = "cross-entropy-step/shared-row"
    dx = rung_runs.verified_outputs(emulator, RUNGS[name], of(name, 4, 101))["dx"]
    np.testing.assert_allclose(dx.sum(axis=1, dtype=np.float64), 0, atol=1e-6)


# -- races, faults -------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
def test_warp_order_changes_nothing_and_no_races(name):
    tiles = {key: value for key, value in {"BLOCK": 128, "LOADS": 2}.items() if key in RUNGS[name].tiles}

    def outputs(options):
        found = rung_runs.verified_outputs(emulator, RUNGS[name], of(name, 3, 300), tiles, options=options)
        return np.concatenate([array.ravel() for array in found.values()])

    rung_runs.same_in_any_order(outputs)


FAULTS = {  # what is wrong: (rung, which launch, original code, faulty code)
    "the sum not rescaled": ("cross-entropy/online", 0, "l *= __expf(old_m - m);", ""),
    "a value that adds to the sum": ("cross-entropy/online", 0, "-INFINITE, -INFINITE, -INFINITE, -INFINITE", "0, 0, 0, 0"),
    "the warps’ barrier": ("cross-entropy/two-pass", 0, "  __syncthreads();\n", ""),
    "a part too few": ("cross-entropy/split", 1, "split < SPLITS", "split < SPLITS - 1"),
    "a row without its first floats": ("cross-entropy-step/cluster", 0, "col + j >= 0 && col + j < N ? x[col + j]", "col >= 0 && col + j < N ? x[col + j]"),
    "the piece of the row before": ("cross-entropy-backward/pieces", 0, "blockIdx.x / pieces, piece", "(blockIdx.x - 1) / pieces, piece"),
    "the weight left out": ("cross-entropy-backward/elements", 0, "0.0f)) * g[row]", "0.0f))"),
    "the label of every column": ("cross-entropy-step/fused", 0, "col == label ? weighted_p - row_g : weighted_p", "weighted_p"),
    "a kept number of another thread": ("cross-entropy-step/shared-row", 0, "float4 value = kept4[four]", "float4 value = kept4[four ^ 1]"),
}  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_kernel_is_detected(fault):
    name, nth, right, wrong = FAULTS[fault]
    rung, shape = RUNGS[name], of(name, 3, 1101)  # each thread has several turns
    tiles = {key: value for key, value in {"BLOCK": 128, "LOADS": 2}.items() if key in rung.tiles}
    program, inputs = rung.build(shape, rung.check(shape, tiles)), given_inputs(name, shape)
    memory = rung_runs.memory_of(program, inputs)
    races = []
    for n, step in enumerate(program.steps):
        change = rung_runs.replace_once(wrong, right) if n == nth else lambda text: text
        with np.errstate(all="ignore"):
            launched = rung_runs.relaunched(step, change, memory)
        if launched is None:
            return
        races += launched.races
    names = tuple(b.name for b in program.outputs)
    reference = by_output(ladder_of(name).reference(shape, **inputs), names)
    expected = rung_reference(rung, shape, tiles, inputs, reference)
    assert races or not all(agrees(memory.array(key), *expected[key], rung.tolerance) for key in names)


# -- rules, cost -----------------------------------------------------------------------------------------
@every("name", RUNGS)
def test_each_choice_is_legal(name):
    rung_runs.each_choice_is_legal(RUNGS[name], of(name, 2, 100))


def test_a_row_that_does_not_fit_is_refused_with_its_bytes():
    rung = RUNGS["cross-entropy-step/shared-row"]
    assert not list(rung.rules(of(rung.name, 1, 58_000), rung.default_tiles))
    (rule,) = rung.rules(of(rung.name, 512, 128_256), rung.default_tiles)
    assert "shared memory <= 232448, got 513280" in rule


@pytest.mark.parametrize(
    ("name", "size", "rule"),
    [
        ("cross-entropy/online", (1, 2**31 - 1), "N must stay below 2"),
        ("cross-entropy/split", (2**30, 4), "grid.x"),
        ("cross-entropy-backward/elements", (2**30, 2**20), "grid.x"),
    ],
)
def test_a_shape_too_large_names_its_rule(name, size, rule):
    assert any(rule in sentence for sentence in RUNGS[name].rules(of(name, *size), RUNGS[name].default_tiles))


@pytest.mark.parametrize("text", ["M=2", "M=0,N=3", "M=2,N=x", "M=2,N=3,K=1"])
def test_malformed_shapes_are_refused(text):
    for ladder in ce.LADDERS:
        with pytest.raises(ShapeError):
            ladder.parse(text)


def test_labels_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"labels must hold whole numbers in 0 .. 9"):
        run("cross-entropy/online", CrossEntropyShape(2, 10), {"labels": np.array([3, 10])}, engine="cpu")


def test_the_fast_rungs_move_the_fewest_bytes():
    """Their cost is the minimum of the shape. The emulator counts the same sectors: one per 32 bytes of x and dx."""
    for name in ("cross-entropy/online", "cross-entropy-backward/rows", "cross-entropy-step/shared-row"):
        shape = of(name, 2, 8192)  # a thread reads label and weight too, which is little of a long row
        result = run(name, shape, engine="emulator", measure=False)
        assert result.predicted.moved_bytes == shape.bytes
        lines = result.counters.lines.items()
        of_fours = [c for line, c in lines if c["bytes_ld"] + c["bytes_st"] >= 4 * shape.elements]
        matrices = shape.bytes // (4 * shape.elements)
        assert sum(c["sectors_ld"] + c["sectors_st"] for c in of_fours) == matrices * shape.elements // 8
