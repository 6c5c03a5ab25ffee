"""Elementwise layers without a GPU: results at any shape and tile size on both engines, hard numbers, orders of the warps,
faults, bytes, rules, and the arguments of PyTorch's calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.elementwise import ladder as elementwise
from kernels.elementwise import normal, reference
from kernels.elementwise.shape import (
    BITS,
    BYTES,
    ERF,
    FORMS,
    KEPT,
    LAYOUTS,
    OUTPUT,
    TANH,
    BiasBackwardShape,
    BiasShape,
    GeluBackwardShape,
    GeluShape,
    ReluBackwardShape,
    ReluShape,
    ResidualBackwardShape,
    ResidualShape,
)
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees, by_output
from kernels.runner import inputs_of, run
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.fake_torch import fake_cuda, no_context
from tests.helpers.offenders import every

RUNGS = {rung.name: (ladder, rung) for ladder in elementwise.LADDERS for rung in ladder.rungs if not rung.library}
ENGINES = (emulator, cpu)
ATOMICS = ("bias-backward/atomics", "bias-backward/block")  # their additions have no fixed order
extents = st.builds(
    lambda n, c, p, q: (n, c, p, q), st.integers(1, 3), st.integers(1, 40), st.integers(1, 6), st.integers(1, 9)
)


def shape_of(ladder, data, extents: tuple[int, ...]):
    """Draws the other fields of a ladder's shape."""
    if issubclass(ladder.shape, ReluShape):
        return ladder.shape(*extents, keep=data.draw(st.sampled_from(KEPT)))
    if issubclass(ladder.shape, GeluShape):
        return ladder.shape(*extents, form=data.draw(st.sampled_from(FORMS)))
    if issubclass(ladder.shape, BiasShape):
        return ladder.shape(*extents, layout=data.draw(st.sampled_from(LAYOUTS)))
    return ladder.shape(*extents)


def options(shape: type) -> list[tuple[str, ...]]:
    """Returns the other fields of a ladder's shapes."""
    for cls, values in ((ReluShape, KEPT), (GeluShape, FORMS), (BiasShape, LAYOUTS)):
        if issubclass(shape, cls):
            return [(value,) for value in values]
    return [()]


# -- results -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(data=st.data(), extents=extents)
def test_both_engines_agree_with_the_reference_at_any_shape_and_tile_sizes(name, data, extents):
    ladder, rung = RUNGS[name]
    shape = shape_of(ladder, data, extents)
    tiles = data.draw(st.sampled_from(rung_runs.legal(rung, shape)))
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, rung, shape, tiles)


@every("name", RUNGS)
@every("count", [1, 32, 33, 129])
def test_edges_of_a_word_a_warp_and_a_float4(name, count):
    ladder, rung = RUNGS[name]
    for fields in options(ladder.shape):
        small = {tile: min(choices) for tile, choices in rung.tiles.items() if tile == "BLOCK"}
        small |= {"PER": rung.sets[0]["PER"]} if "PER" in rung.tiles else {}
        rung_runs.verified_outputs(emulator, rung, ladder.shape(1, count, 1, 1, *fields), small)


HARD = {
    "zeros of both signs, subnormal and tiny": [0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38],
    "near the largest": [1.5e38, -1.5e38, 1.0],
    "all negative": [-1.0, -3.0],
    "every size": [1e-30, -1e30, 3.0, 1e10, -1e-10],
}


@every("name", RUNGS)
@every("kind", HARD)
def test_hard_numbers(name, kind):
    ladder, rung = RUNGS[name]
    for fields in options(ladder.shape):
        check_hard_numbers(ladder, rung, ladder.shape(2, 3, 1, 7, *fields), kind)


def check_hard_numbers(ladder, rung, shape, kind: str) -> None:
    name, program = rung.name, rung.build(shape, rung.default_tiles)
    free = {b.name: np.resize(np.float32(HARD[kind]), b.shape) for b in program.of_role("input")}
    if kind == "near the largest" and name.startswith(("bias", "residual")):  # their sums would overflow
        free = {key: value / 64 for key, value in free.items()}
    inputs = free | dict(ladder.derive(shape, free) if ladder.derive else {})
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, rung, shape, inputs=inputs)


@pytest.mark.parametrize("keep", KEPT)
def test_relu_passes_nan_on(keep):
    """A network that diverges must show it. fmaxf would turn NaN into 0."""
    shape = ReluShape(1, 1, 1, 5, keep)
    x = np.array([1, np.nan, -1, np.inf, -np.inf], np.float32).reshape(shape.maps)
    for name in ("scalar", "float4"):
        out, _ = rung_runs.computed_outputs(emulator, RUNGS[f"relu/{name}"][1], shape, inputs={"x": x})
        np.testing.assert_array_equal(out["y"].ravel(), [1, np.nan, 0, np.inf, 0])
        if keep != OUTPUT:
            assert reference.is_positive(shape, out["mask"]).ravel().tolist() == [True, False, False, True, False]


@every("name", [name for name in RUNGS if name.startswith(("relu-backward/", "residual-backward/"))])
def test_a_gradient_that_is_not_finite_is_dropped_where_relu_is_flat(name):
    """PyTorch's gradient is 0 there whatever dy is: infinity times 0 would be NaN."""
    ladder, rung = RUNGS[name]
    dy = np.array([np.inf, -np.inf, np.nan, np.inf, -np.inf], np.float32)
    y = np.array([0, -1, -2, 3, 0], np.float32)
    for fields in options(ladder.shape):
        s = ladder.shape(1, 1, 1, 5, *fields)
        inputs = {"dy": dy.reshape(s.maps), "y": y.reshape(s.maps), "db": np.zeros(s.maps, np.float32)}
        if "mask" in [b.name for b in rung.build(s, rung.default_tiles).of_role("input")]:
            inputs["mask"] = reference.mask_of(ReluShape(1, 1, 1, 5, *fields), inputs["y"])
        inputs = {b.name: inputs[b.name] for b in rung.build(s, rung.default_tiles).of_role("input")}
        for engine in ENGINES:
            out, _ = rung_runs.computed_outputs(engine, rung, s, inputs=dict(inputs))
            for name_, result in out.items():
                assert result.ravel().tolist() == [0, 0, 0, np.inf, 0], (engine, name_)


@pytest.mark.parametrize("form", FORMS)
def test_gelu_passes_nan_on(form):
    x = np.array([1, np.nan, -1, np.inf, 40, -40], np.float32).reshape(1, 1, 1, 6)
    for name in ("scalar", "float4"):
        y, _ = rung_runs.computed_outputs(
            emulator, RUNGS[f"gelu/{name}"][1], GeluShape(1, 1, 1, 6, form), inputs={"x": x}
        )
        back = GeluBackwardShape(1, 1, 1, 6, form)
        dx, _ = rung_runs.computed_outputs(
            emulator, RUNGS[f"gelu-backward/{name}"][1], back, inputs={"dy": np.ones_like(x), "x": x}
        )
        assert np.isnan(y["y"].ravel()).tolist() == [False, True, *[False] * 4]
        assert np.isnan(dx["dx"].ravel()[1]) and dx["dx"].ravel()[4:].tolist() == [1, 0]


@every("name", RUNGS)
def test_any_order_of_the_warps_gives_the_same_bits_without_a_race(name):
    ladder, rung = RUNGS[name]
    shape = ladder.shape(2, 3, 5, 9)
    tiles = dict(rung.sets[0])
    if name in ATOMICS:
        races = []
        original = emulator.Session.launch
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                emulator.Session, "launch", lambda s, step: (r := original(s, step), races.extend(r.races))[0]
            )
            for order in ("forward", "reversed"):
                rung_runs.verified_outputs(emulator, rung, shape, tiles, options=Options(order=order, races=True))
        assert not races
        return

    def all_outputs(options):
        out = rung_runs.verified_outputs(emulator, rung, shape, tiles, options=options)
        return np.concatenate([array.ravel() for array in out.values()])

    rung_runs.same_in_any_order(all_outputs)


def test_two_launches_give_the_same_bits_for_any_number_of_parts_on_the_same_part():
    """The sums of the parts have fixed places: a second run gives the same bits. With atomics the order decides."""
    shape = BiasBackwardShape(4, 3, 30, 30)
    rung = RUNGS["bias-backward/two-launches"][1]
    outputs = [
        rung_runs.computed(emulator, rung, shape, {"BLOCK": 32, "PER": 2}, options=Options(order=order))[0]
        for order in ("forward", "reversed", 3)
    ]
    assert len(rung.build(shape, {"BLOCK": 32, "PER": 2}).buffers[-1].shape) == 2
    for out in outputs[1:]:
        np.testing.assert_array_equal(out, outputs[0])


# -- faults ------------------------------------------------------------------------------------------
FAULTS = [
    ("relu/scalar", {"keep": BITS}, "03_relu_bits", "mask[i / 32] = word", "mask[i / 32] = word | 1u"),
    (
        "relu/float4",
        {"keep": BITS},
        "04_relu_float4",
        "positive << 4 * (threadIdx.x % 8)",
        "positive << 4 * (threadIdx.x % 4)",
    ),
    ("relu/float4", {"keep": BYTES}, "04_relu_float4", "(v[k][j] > 0.0f) << j", "(v[k][j] >= 1.0f) << j"),
    ("relu-backward/scalar", {"keep": BITS}, "06_relu_backward_bits", "i % 32 & 1", "(i + 1) % 32 & 1"),
    (
        "relu-backward/float4",
        {},
        "07_relu_backward_float4",
        "v[k][j] : 0.0f;\n    store",
        "v[k][j] : v[k][j];\n    store",
    ),
    ("gelu/scalar", {}, "19_gelu", "0.5f * (1.0f + erff", "0.4999f * (1.0f + erff"),
    ("gelu/float4", {"form": TANH}, "20_gelu_float4", "0.044715f * x", "0.0447f * x * x"),
    ("gelu-backward/scalar", {}, "21_gelu_backward", "expf(-0.5f * x * x)", "expf(-0.51f * x * x)"),
    ("gelu-backward/float4", {"form": TANH}, "22_gelu_backward", "(1.0f - t * t)", "(1.0f - t)"),
    ("bias/float4", {}, "09_bias_float4", "channel_of(i + j, shape)", "channel_of(i, shape)"),
    ("bias-backward/block", {"layout": "nhwc"}, "11_bias_backward_block", "threadIdx.x < columns && active", "active"),
    (
        "bias-backward/two-launches",
        {"layout": "nhwc"},
        "12_bias_backward_sums",
        "int half = (rows + 1) / 2",
        "int half = rows / 2",
    ),
    ("residual-backward/scalar", {}, "17_residual_backward", "db[i] += gradient", "db[i] = gradient"),
]


@needs_nvrtc
@pytest.mark.parametrize(("name", "fields", "file", "right", "wrong"), FAULTS, ids=[f"{f[0]}-{f[2]}" for f in FAULTS])
def test_a_fault_in_a_kernel_is_detected(name, fields, file, right, wrong, monkeypatch):
    ladder, rung = RUNGS[name]
    shape, tiles, original = ladder.shape(2, 5, 5, 3, **fields), dict(rung.sets[0]), sources.translation_unit

    def faulty(path):
        text = original(path)
        if file not in path:
            return text
        assert text.count(right) == 1, right
        return text.replace(right, wrong)

    rung_runs.verified_outputs(emulator, rung, shape, tiles)
    monkeypatch.setattr(sources, "translation_unit", faulty)
    with pytest.raises((AssertionError, RuleError)):
        rung_runs.verified_outputs(emulator, rung, shape, tiles)


# -- masks -------------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=100))
def test_a_mask_of_bits_holds_each_answer_at_its_place(values):
    x = np.array(values, np.float32).reshape(1, 1, 1, -1)
    shape = ReluShape(*x.shape, BITS)
    mask = reference.mask_of(shape, x)
    assert mask.dtype == np.uint32 and mask.shape == (math.ceil(x.size / 32),)
    for i, value in enumerate(x.ravel()):
        assert bool(mask[i // 32] >> np.uint32(i % 32) & 1) == (value > 0)
    assert sum(int(word).bit_count() for word in mask) == (x > 0).sum()
    np.testing.assert_array_equal(reference.is_positive(shape, mask), x > 0)


def test_backward_from_y_bytes_and_bits_is_the_same():
    results = []
    for keep in KEPT:
        shape = ReluBackwardShape(2, 3, 5, 7, keep)
        for name in ("relu-backward/scalar", "relu-backward/float4"):
            results.append(rung_runs.verified_output(emulator, RUNGS[name][1], shape))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    assert 0 < (results[0] == 0).mean() < 1


# -- bytes -------------------------------------------------------------------------------------------
def test_what_is_kept_costs_bytes():
    n = 64 * 32
    shapes = [(cls(64, 1, 4, 8, keep)) for cls in (ReluShape, ReluBackwardShape) for keep in KEPT]
    assert [s.bytes / n for s in shapes] == [8, 9, 8.125, 12, 9, 8.125]
    assert ReluShape(1, 1, 1, 33, BITS).mask_bytes == 8


@every("name", [name for name in RUNGS if name not in ATOMICS])
def test_the_cost_counts_what_the_threads_request(name):
    """At whole warps and aligned maps, where every byte of a request is used. b and the sums of few channels are left out:
    threads read them again from a cache."""
    ladder, rung = RUNGS[name]
    shape = ladder.shape(2, 4, 16, 32)
    result = run(name, shape, engine="emulator", tiles=dict(rung.sets[0]))
    total, cost = result.counters.total, result.predicted
    moved = total["bytes_ld"] + total["bytes_st"]
    again = 4 * shape.elements if name.startswith("bias/") else 0  # b is read per element
    assert abs(moved - again - cost.bytes) <= 64 * shape.C


def test_a_residual_in_one_launch_moves_three_fifths():
    shape = ResidualShape(2, 4, 8, 8)
    cost = {
        name: RUNGS[f"residual/{name}"][1].cost(shape, RUNGS[f"residual/{name}"][1].build(shape, {"BLOCK": 256}))
        for name in ("two-launches", "scalar")
    }
    assert cost["scalar"].bytes / cost["two-launches"].bytes == 0.6
    assert cost["two-launches"].workspace_bytes == 4 * shape.elements


# -- shapes and rules ---------------------------------------------------------------------------------
@every(
    ("make", "message"),
    [
        (lambda: ReluShape(1, 1, 1, 1, "x"), "keep must be one of y, bytes, bits"),
        (lambda: BiasShape(1, 1, 1, 1, "nhcw"), "layout must be one of nchw, nhwc"),
        (lambda: ReluShape(0, 1, 1, 1), r"N must be in 1 \.\."),
        (lambda: ResidualShape(2**16, 2**15, 1, 1), "must stay below 2\\^31"),
        (lambda: ResidualBackwardShape(1, 2.5, 1, 1), "C must be a whole number"),
        (lambda: elementwise.RELU.parse("N=1,C=1,P=1"), "missing Q"),
        (lambda: elementwise.RELU.parse("N=1,C=1,P=1,Q=1,layout=nhwc"), "no field .layout."),
    ],
)
def test_malformed_shapes_are_refused(make, message):
    with pytest.raises(ShapeError, match=message):
        make()


def test_shapes_are_parsed():
    assert elementwise.RELU.parse("N=2,C=3,P=4,Q=5,keep=bits") == ReluShape(2, 3, 4, 5, BITS)
    assert elementwise.BIAS.parse("N=2,C=3,P=4,Q=5,layout=nhwc").maps == (2, 4, 5, 3)


def test_indices_beyond_31_bits_are_refused():
    shape = ResidualShape(2**31 - 2, 1, 1, 1)
    with pytest.raises(RuleError, match="must stay below 2\\^31"):
        RUNGS["residual/float4"][1].check(shape, {})


@pytest.mark.parametrize("name", ["relu/library", "relu-backward/library"])
def test_pytorch_keeps_y_alone(name):
    rung = next(r for ladder in elementwise.LADDERS for r in ladder.rungs if r.name == name)
    with pytest.raises(RuleError, match="keep must be y: PyTorch’s ReLU keeps nothing else, got bits"):
        rung.check(ReluBackwardShape(1, 1, 1, 1, BITS), {})


# -- PyTorch -----------------------------------------------------------------------------------------
APPROXIMATE = {"none": ERF, "tanh": TANH}  # PyTorch's name of each form


class Torch:
    """The functions of PyTorch that are called, in NumPy."""

    def __init__(self):
        def add(x, b, out):
            np.add(x, b, out=out)

        class Aten:
            class threshold_backward:
                @staticmethod
                def grad_input(dy, y, limit, grad_input):
                    grad_input[...] = np.where(y > limit, dy, 0)

            class gelu:
                @staticmethod
                def out(x, approximate, out):
                    out[...] = x * normal.share_below(x, APPROXIMATE[approximate])

            class gelu_backward:
                @staticmethod
                def grad_input(dy, x, approximate, grad_input):
                    grad_input[...] = dy * normal.slope(x, APPROXIMATE[approximate])

        self.ops = type("ops", (), {"aten": Aten})
        self.add = add
        self.clamp_min = lambda x, low, out: np.maximum(x, low, out=out)
        self.sum = lambda x, dim, out: np.sum(x, axis=dim, out=out)
        self.inference_mode, self.cuda = no_context, fake_cuda()


class Tensor(np.ndarray):
    def clamp_min_(self, low):
        np.maximum(self, low, out=self)

    def add_(self, other):
        self += other


@pytest.mark.parametrize("ladder", elementwise.LADDERS, ids=lambda ladder: ladder.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pytorch_gets_the_tensors_in_their_order(ladder, layout, monkeypatch):
    """A fake of PyTorch computes with what it is given: the result agrees with the reference."""
    from kernels.libraries import torch as torch_library

    monkeypatch.setattr(torch_library, "load", Torch)
    monkeypatch.setattr(torch_library, "as_tensor", lambda torch, array: array.view(Tensor))
    monkeypatch.setattr(torch_library, "on_current_stream", lambda torch: no_context())
    chosen = {LAYOUTS[n]: option for n, option in enumerate(options(ladder.shape)[:2])}
    option = () if issubclass(ladder.shape, ReluShape) else chosen.get(layout, ())  # of ReLU, PyTorch keeps y alone
    shape, rung = ladder.shape(2, 3, 4, 5, *option), ladder.rungs[-1]
    program = rung.build(shape, {})
    inputs = inputs_of(ladder, shape, program)
    arrays = {b.name: np.full(b.shape, np.nan, b.dtype) for b in program.outputs} | {
        name: array.copy() for name, array in inputs.items()
    }
    (step,) = program.steps
    step.bind(*(arrays[a] if isinstance(a, str) else a for a in step.args))()
    expected = by_output(ladder.reference(shape, **inputs), tuple(b.name for b in program.outputs))
    for name, (ref, scale) in expected.items():
        assert agrees(arrays[name], ref, scale, rung.tolerance), name
