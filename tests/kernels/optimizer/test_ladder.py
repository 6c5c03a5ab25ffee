"""Optimisers without a GPU: results at any list of tensors and tile size on both engines, hard numbers, the gaps between
the tensors, faults, many steps, the table of chunks, shapes, and the arguments of PyTorch's calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.engines import cpu, emulator
from kernels.libraries import torch as torch_library
from kernels.model.program import Launch, RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees, by_output
from kernels.optimizer import ladder as optimizer
from kernels.optimizer import library, reference
from kernels.optimizer.presets import LENET, presets
from kernels.optimizer.shape import ALIGNMENT, CHUNK, AdamShape, SgdShape, parse_sizes, sizes_text
from kernels.runner import inputs_of, run
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.fake_torch import fake_cuda, no_context
from tests.helpers.offenders import every

RUNGS = {rung.name: (ladder, rung) for ladder in optimizer.LADDERS for rung in ladder.rungs if not rung.library}
LIBRARIES = {rung.name: (ladder, rung) for ladder in optimizer.LADDERS for rung in ladder.rungs if rung.library}
ENGINES = (emulator, cpu)
sizes = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 300), st.integers(4090, 4100)), min_size=1, max_size=6)
factors = st.floats(0, 2).map(lambda f: round(f, 3))
decays = st.sampled_from([0.5, 0.9, 0.99, 0.999])
sgd_shapes = st.builds(
    lambda n, lr, mu, wd: SgdShape(sizes_text(tuple(n)), lr, mu, wd), sizes, factors, decays, factors
)
adam_shapes = st.builds(
    lambda n, step, lr, b1, b2, eps, wd: AdamShape(sizes_text(tuple(n)), step, lr, b1, b2, eps, wd),
    sizes,
    st.integers(1, 1000),
    factors,
    st.sampled_from([0.0, 0.5, 0.9]),
    decays,
    st.sampled_from([0.1, 1e-8]),
    factors,
)
SHAPES = {"sgd": sgd_shapes, "adam": adam_shapes}


# -- results -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=4)
@given(data=st.data())
def test_both_engines_agree_with_the_reference_at_any_list_and_tile_sizes(name, data):
    ladder, rung = RUNGS[name]
    shape = data.draw(SHAPES[ladder.name])
    tiles = data.draw(st.sampled_from(rung_runs.legal(rung, shape)))
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, rung, shape, tiles)


@every("name", RUNGS)
def test_small_presets(name):
    ladder, rung = RUNGS[name]
    for key in ("toy", "odd"):
        shape = ladder.presets[f"{ladder.name}-{key}"].shape
        for engine in ENGINES:
            rung_runs.verified_outputs(engine, rung, shape)


HARD = {
    "zero gradients": {"g": 0.0},
    "zero averages": {"m": 0.0, "v": 0.0},
    "all zero": {"w": 0.0, "g": 0.0, "m": 0.0, "v": 0.0},
    "tiny gradients": {"g": 1e-25, "m": 0.0, "v": 0.0},
    "subnormal averages": {"m": 1e-42, "v": 1e-42},
    "large": {"w": 1e8, "g": -1e12, "m": 1e12, "v": 1e20},
}


@every("name", RUNGS)
@every("kind", HARD)
def test_hard_numbers(name, kind):
    ladder, rung = RUNGS[name]
    shape = ladder.shape("5 70")
    program = rung.build(shape, rung.default_tiles)
    inputs = inputs_of(ladder, shape, program)
    inputs |= {key: np.full_like(inputs[key], value) for key, value in HARD[kind].items() if key in inputs}
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, rung, shape, inputs=inputs)


@pytest.mark.parametrize("name", RUNGS)
def test_any_order_of_the_warps_gives_the_same_bits_without_a_race(name):
    ladder, rung = RUNGS[name]

    def all_outputs(options):
        out = rung_runs.verified_outputs(emulator, rung, ladder.shape("9 70 3"), dict(rung.sets[0]), options=options)
        return np.concatenate([array.ravel() for array in out.values()])

    rung_runs.same_in_any_order(all_outputs)


@every("name", RUNGS)
def test_the_gaps_between_the_tensors_keep_their_bits(name):
    ladder, rung = RUNGS[name]
    shape = ladder.shape("1 63 65")
    gaps = ~reference.in_tensors(shape)
    assert gaps.sum() == 63 + 1 + 63
    for engine in ENGINES:
        out, inputs = rung_runs.computed_outputs(engine, rung, shape)
        for array, result in out.items():
            np.testing.assert_array_equal(result[gaps], inputs[array][gaps])
            assert (result[~gaps] != inputs[array][~gaps]).all()


@every("name", RUNGS)
def test_all_rungs_of_a_ladder_give_the_same_bits(name):
    ladder, rung = RUNGS[name]
    shape = ladder.shape("33 4097", weight_decay=0.25)
    first = rung_runs.computed_outputs(emulator, ladder.rungs[0], shape)[0]
    for array, result in rung_runs.computed_outputs(emulator, rung, shape)[0].items():
        np.testing.assert_array_equal(result, first[array])


# -- the definitions -----------------------------------------------------------------------------------
def textbook_adam(s: AdamShape, w, gradients):
    """Returns w after the steps of Adam, one weight at a time, as algorithm 1 of arXiv 1412.6980 says."""
    w = w.copy()
    for i in range(w.size):
        m = v = 0.0
        for t, g in enumerate(gradients[:, i], 1):
            m = s.beta1 * m + (1 - s.beta1) * g
            v = s.beta2 * v + (1 - s.beta2) * g**2
            w[i] -= s.lr * (m / (1 - s.beta1**t)) / (math.sqrt(v / (1 - s.beta2**t)) + s.eps)
    return w


def ten_steps(engine, ladder, shapes):
    """Returns (first w, gradients, last w) of ten steps from averages of 0."""
    rung, rng = ladder.rungs[1], np.random.default_rng(0)
    count = shapes[0].extent
    state = {b.name: np.zeros(count, np.float32) for b in rung.build(shapes[0], rung.default_tiles).in_place}
    state["w"] = first = rng.normal(size=count).astype(np.float32)
    gradients = rng.normal(size=(10, count)).astype(np.float32)
    for shape, g in zip(shapes, gradients, strict=True):
        inputs = {**state, "g": g} | optimizer.chunk_table(shape, {})
        state, _ = rung_runs.computed_outputs(engine, rung, shape, inputs=inputs)
    return first, gradients, state["w"]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__.rpartition(".")[2])
def test_ten_steps_of_adam_are_those_of_the_paper(engine):
    s = AdamShape("64", lr=0.01)
    w, gradients, last = ten_steps(engine, optimizer.ADAM, [s.with_(step=t) for t in range(1, 11)])
    expected = textbook_adam(s, w.astype(float), gradients.astype(float))
    np.testing.assert_allclose(last, expected, rtol=1e-5, atol=1e-7)
    uncorrected, *_ = ten_steps(engine, optimizer.ADAM, [s.with_(step=10**6)] * 10)[::-1]
    assert np.abs(uncorrected - expected).max() > 1e-3  # the corrections matter


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__.rpartition(".")[2])
def test_ten_steps_of_sgd_are_sums_of_gradients(engine):
    """Without weight decay: w falls by lr times the sum of all gradients, each with the powers of momentum so far."""
    s = SgdShape("64", lr=0.1, momentum=0.5)
    w, gradients, last = ten_steps(engine, optimizer.SGD, [s] * 10)
    weights = np.array([sum(s.momentum**k for k in range(10 - t)) for t in range(10)])
    expected = w.astype(float) - s.lr * weights @ gradients.astype(float)
    np.testing.assert_allclose(last, expected, rtol=1e-5, atol=1e-6)


def test_the_first_step_of_adam_moves_every_weight_by_the_rate():
    """With m and v of 0 the corrected averages are g and g^2: w moves by lr against the sign of g."""
    s = AdamShape("100", lr=0.01)
    g = np.random.default_rng(1).normal(size=s.extent).astype(np.float32)
    zeros = np.zeros(s.extent, np.float32)
    (w, _), *_ = reference.adam(s, zeros, g, zeros, zeros, None).values()
    np.testing.assert_allclose(w[:100], -0.01 * np.sign(g[:100]), rtol=1e-4)


# -- faults ------------------------------------------------------------------------------------------
FAULTS = [
    ("sgd/float4", "sgd.cuh", "by.momentum * v + g", "by.momentum * (v + g)"),
    ("sgd/one-launch", "02_sgd_chunks", "i < chunk.y", "i <= chunk.y"),
    (
        "sgd/float4",
        "03_sgd_float4",
        "store_four(v, i + 4 * BLOCK * k, chunk.y,",
        "store_four(v, i + 4 * BLOCK * k, chunk.y + 1,",
    ),
    ("adam/float4", "adam.cuh", "sqrtf(v) * by.root + by.eps", "sqrtf(v * by.root) + by.eps"),
    ("adam/one-launch", "05_adam_chunks", "i += BLOCK", "i += 2 * BLOCK"),
    ("adam/per-tensor", "04_adam_tensor", "first + i", "i"),
]


@needs_nvrtc
@pytest.mark.parametrize(("name", "file", "right", "wrong"), FAULTS, ids=[f"{f[0]}-{f[1]}" for f in FAULTS])
def test_a_fault_in_a_kernel_is_detected(name, file, right, wrong, monkeypatch):
    ladder, rung = RUNGS[name]
    shape, tiles, original = ladder.shape("33 200"), dict(rung.sets[0]), sources.translation_unit

    def faulty(path):
        text = original(path)
        if file in path or file in text:
            assert text.count(right) == 1, right
            return text.replace(right, wrong)
        return text

    rung_runs.verified_outputs(emulator, rung, shape, tiles)
    monkeypatch.setattr(sources, "translation_unit", faulty)
    with pytest.raises((AssertionError, RuleError)):
        rung_runs.verified_outputs(emulator, rung, shape, tiles)


# -- the table and the shape ---------------------------------------------------------------------------
@settings(max_examples=20)
@given(sizes)
def test_chunks_cover_every_element_of_every_tensor_once(counts):
    s = SgdShape(sizes_text(tuple(counts)))
    covered = np.zeros(s.extent, int)
    for first, count in s.chunks:
        assert 1 <= count <= CHUNK and first % 4 == 0
        covered[first : first + count] += 1
    np.testing.assert_array_equal(covered, reference.in_tensors(s))
    assert all(first % ALIGNMENT == 0 for first, _ in s.tensors)
    assert [count for _, count in s.tensors] == counts and s.elements == sum(counts)


@settings(max_examples=20)
@given(sizes)
def test_sizes_are_the_same_in_any_spelling(counts):
    text = " ".join(map(str, counts))
    assert parse_sizes(sizes_text(tuple(counts))) == parse_sizes(text) == tuple(counts)
    assert SgdShape(text) == SgdShape(f"  {text} ") == SgdShape(sizes_text(tuple(counts)))


def test_the_lists_of_networks():
    shapes = {key: preset.shape for key, preset in presets("x", SgdShape).items()}
    assert shapes["x-lenet"].sizes == LENET and shapes["x-lenet"].elements == 61_706
    assert len(shapes["x-resnet18"].counts) == 62 and shapes["x-resnet18"].elements == 11_689_512
    assert shapes["x-gpt2-layer"].elements == 7_087_872 and shapes["x-64m"].elements == 2**26


@every(
    ("make", "message"),
    [
        (lambda: SgdShape(""), "sizes must name at least one tensor"),
        (lambda: SgdShape(5), "sizes must be text, got 5"),
        (lambda: SgdShape("5 x"), "sizes are numbers of elements, .*got 'x'"),
        (lambda: SgdShape("5,6"), "got '5,6'"),
        (lambda: SgdShape("²"), "got '²'"),
        (lambda: SgdShape("0"), r"SIZE must be in 1 \.\."),
        (lambda: SgdShape("5*0"), r"TIMES must be in 1 \.\. 512"),
        (lambda: SgdShape("5*512 5"), "at most 512 tensors"),
        (lambda: SgdShape("2000000000*2"), "all tensors together"),
        (lambda: SgdShape("5", momentum=1), "momentum must be below 1"),
        (lambda: SgdShape("5", momentum=0), "momentum must be above 0"),
        (lambda: SgdShape("5", lr=-1), "lr must not be below 0"),
        (lambda: AdamShape("5", step=0), r"step must be in 1 \.\."),
        (lambda: AdamShape("5", beta1=1.5), "beta1 must be below 1"),
        (lambda: AdamShape("5", eps=0), "eps must be at least"),
        (lambda: AdamShape("5", lr=math.inf), "lr must be finite"),
        (lambda: optimizer.ADAM.parse("lr=1"), "missing sizes"),
        (lambda: optimizer.ADAM.parse("sizes=5,momentum=0.5"), "no field 'momentum'"),
    ],
)
def test_malformed_shapes_are_refused(make, message):
    with pytest.raises(ShapeError, match=message):
        make()


def test_a_shape_is_parsed_from_a_command_line():
    assert optimizer.ADAM.parse("sizes=150 6*2,step=3,lr=1e-2") == AdamShape("150 6 6", 3, 0.01)


def test_a_round_larger_than_a_chunk_is_refused():
    with pytest.raises(RuleError, match="of a chunk, got 8192"):
        RUNGS["adam/float4"][1].check(AdamShape("5"), {"BLOCK": 512, "PER": 4})


# -- launches and bytes --------------------------------------------------------------------------------
def test_a_launch_per_tensor_and_one_for_all():
    shape = optimizer.ADAM.presets["adam-lenet"].shape
    launches = {
        name: [step for step in rung.build(shape, rung.default_tiles).steps if isinstance(step, Launch)]
        for name, (ladder, rung) in RUNGS.items()
        if ladder is optimizer.ADAM
    }
    assert [len(steps) for steps in launches.values()] == [10, 1, 1]
    names = [step.name for step in launches["adam/per-tensor"]]
    assert len(set(names)) == 10


@every("name", RUNGS)
def test_the_cost_counts_what_the_threads_request(name):
    ladder, rung = RUNGS[name]
    shape = ladder.shape("256 512")
    result = run(name, shape, engine="emulator", tiles=dict(rung.sets[0]))
    total, blocks = result.counters.total, math.prod(rung.build(shape, {"BLOCK": 32, "PER": 1}).steps[0].grid)
    moved, table = total["bytes_ld"] + total["bytes_st"], 8 * len(shape.chunks)
    read_again = (
        0 if name.endswith("per-tensor") else (32 * blocks - len(shape.chunks)) * 8
    )  # by every thread of a block
    assert moved - read_again == result.predicted.bytes == shape.bytes + (table if read_again else 0)


def test_bytes_per_element():
    assert SgdShape("100").bytes == 20 * 100 and AdamShape("100").bytes == 28 * 100


# -- PyTorch -----------------------------------------------------------------------------------------
class Step:
    """A step counter as PyTorch keeps it, on the host."""

    def __init__(self, value: float):
        self.value = value

    def fill_(self, value: float):
        self.value = value


class Torch:
    """The functions of PyTorch that are called, in NumPy, one tensor after another. They record their calls."""

    def __init__(self):
        self.inference_mode, self.cuda = no_context, fake_cuda(peak=20, now=8)
        self.tensor, self.full = Step, lambda size, value, device: Step(value)

    def _foreach_add(self, xs, ys, alpha):
        return [x + alpha * y for x, y in zip(xs, ys, strict=True)]

    def _foreach_add_(self, xs, ys, alpha):
        for x, y in zip(xs, ys, strict=True):
            x += np.float32(alpha) * y

    def _foreach_mul_(self, xs, factor):
        for x in xs:
            x *= np.float32(factor)

    def _fused_sgd_(self, w, g, v, **by):
        assert by["dampening"] == 0 and not by["nesterov"] and not by["is_first_step"] and not by["maximize"]
        for tensors in zip(w, g, v, strict=True):
            cpu_update(tensors, optimizer.SGD_KIND, SgdShape("1", by["lr"], by["momentum"], by["weight_decay"]))

    def functional_adam(self, w, g, m, v, max_v, steps, *, foreach, **by):
        assert foreach
        for step in steps:
            step.value += 1
        self._fused_adam_(w, g, m, v, max_v, steps, **by)

    def _fused_adam_(self, w, g, m, v, max_v, steps, *, amsgrad, maximize, **by):
        assert not (max_v or amsgrad or maximize)
        for *tensors, step in zip(w, g, m, v, steps, strict=True):
            cpu_update(tensors, optimizer.ADAM_KIND, AdamShape("1", int(step.value), **by))


def cpu_update(tensors, kind, shape) -> None:
    kind.update(*tensors, kind.factors(shape))


@pytest.mark.parametrize("name", LIBRARIES)
def test_pytorch_gets_the_tensors_and_the_factors(name, monkeypatch):
    """A fake of PyTorch computes with what it is given: twice from the same values gives the reference twice."""
    fake = Torch()
    monkeypatch.setattr(torch_library, "load", lambda: fake)
    monkeypatch.setattr(library, "functional_adam", lambda: fake.functional_adam)
    monkeypatch.setattr(torch_library, "as_tensor", lambda torch, array: array)
    monkeypatch.setattr(torch_library, "on_current_stream", lambda torch: no_context())
    ladder, rung = LIBRARIES[name]
    shape = ladder.shape("5 70 6*2", lr=0.03, weight_decay=0.125)
    shape = shape.with_(step=5) if ladder is optimizer.ADAM else shape
    program = rung.build(shape, {})
    inputs = inputs_of(ladder, shape, program)
    arrays = {key: array.copy() for key, array in inputs.items()}
    (step,) = program.steps
    call = step.bind(*(arrays[a] if isinstance(a, str) else a for a in step.args))
    expected = by_output(ladder.reference(shape, **inputs), tuple(b.name for b in program.outputs))
    for _ in range(2):
        for key, array in inputs.items():
            arrays[key][...] = array
        call()
        for output, (ref, scale) in expected.items():
            assert agrees(arrays[output], ref, scale, rung.tolerance), output
    assert call.workspace_bytes == 12
