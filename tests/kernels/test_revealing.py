"""The random inputs that verification uses show small faults: eps of 0, no cap, a key, a number or a pixel left out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels.attention.shape import AttentionShape
from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.elementwise.shape import BiasBackwardShape
from kernels.engines import emulator
from kernels.fusion.shape import ChainShape
from kernels.ladders import LADDERS, find
from kernels.model.program import Launch
from kernels.model.verify import agrees, by_output
from kernels.norm.shape import EPS, BatchNormInferenceShape, BatchNormShape, LayerNormShape, RmsNormShape
from kernels.pooling.shape import GlobalShape
from kernels.runner import compare, inputs_of, rung_reference
from kernels.softmax.shape import SoftmaxShape
from tests.helpers.rung_runs import UNCOUNTED


def given(rung, shape):
    """Returns the program of a rung, its inputs as verification makes them, and what is expected of each output."""
    ladder = LADDERS[rung.name.partition("/")[0]]
    tiles = rung.tiles_at(shape)
    program = rung.build(shape, tiles)
    inputs = inputs_of(ladder, shape, program)
    names = tuple(b.name for b in program.outputs)
    expected = by_output(ladder.reference(shape, **inputs), names)
    return program, inputs, rung_reference(rung, shape, tiles, inputs, expected)


def with_argument(program, value, wrong):
    """Returns the program with an argument of its launches replaced: every float32 that equals `value`."""
    changed = 0

    def replaced(argument):
        nonlocal changed
        if isinstance(argument, np.float32) and argument == np.float32(value):
            changed += 1
            return np.float32(wrong)
        return argument

    steps = tuple(
        dataclasses.replace(step, args=tuple(map(replaced, step.args))) if isinstance(step, Launch) else step
        for step in program.steps
    )
    assert changed
    return dataclasses.replace(program, steps=steps)


def accepted(rung, program, inputs, expected) -> bool:
    session = emulator.Session(program, inputs, UNCOUNTED)
    session.verify_run()
    return all(agrees(np.array(session.fetch(name)), *of, rung.tolerance) for name, of in expected.items())


# -- an argument that is wrong -------------------------------------------------------------------------
NORMS = {
    "batch-norm": [BatchNormShape(2, 3, 4, 5), BatchNormShape(2, 1, 4, 5, "nhwc")],
    "batch-norm-inference": [BatchNormInferenceShape(2, 3, 4, 5)],
    "layer-norm": [LayerNormShape(3, 40), LayerNormShape(1, 40)],
    "rms-norm": [RmsNormShape(3, 40), RmsNormShape(1, 40)],
    "fusion": [ChainShape(1, 3, 6, 6, "bias bn relu")],
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_without_eps_is_refused(name):
    """At a variance of 1 an eps of 1e-5 changes the result by 5e-6, which is allowed."""
    tried = []
    for shape in NORMS[name]:
        for rung in LADDERS[name].rungs:
            if rung.library or any(rung.rules(shape, rung.tiles_at(shape))):
                continue
            program, inputs, expected = given(rung, shape)
            assert accepted(rung, program, inputs, expected), rung.name
            assert not accepted(rung, with_argument(program, EPS, 0), inputs, expected), rung.name
            tried.append(rung.name)
    if name != "fusion":
        assert set(tried) == {r.name for r in LADDERS[name].rungs if not r.library}


CAPPED = {
    "flash-variants": AttentionShape(1, 2, 40, 16, causal=1, softcap=50),
    "flash-mma-variants": AttentionShape(1, 2, 40, 32, causal=1, softcap=50, dtype="bf16"),
    "flash-decode": AttentionShape(1, 2, 1, 32, softcap=50, dtype="bf16", M=64, kv_heads=1),
    "flash-decode-ring": AttentionShape(1, 2, 1, 32, softcap=50, dtype="fp16", M=64, kv_heads=1),
}


@pytest.mark.parametrize("name", CAPPED)
def test_attention_without_its_cap_is_refused(name):
    rung, shape = find(f"attention/{name}"), CAPPED[name]
    program, inputs, expected = given(rung, shape)
    assert accepted(rung, program, inputs, expected)
    assert not accepted(rung, with_argument(program, 50, 0), inputs, expected)


# -- a term that is left out ---------------------------------------------------------------------------
LONG = {
    "causal": AttentionShape(1, 4, 1024, 64, causal=1, dtype="fp16"),
    "all keys": AttentionShape(1, 4, 1024, 64, dtype="bf16"),
    "decoding": AttentionShape(1, 32, 1, 128, causal=1, dtype="fp16", M=8192, kv_heads=8),
}


def attention_without(s, inputs, keys):
    """Yields O without one of the keys, or with all for None, rounded to the type of V."""
    q = inputs["Q"].astype("f8").reshape(-1, s.sharing, s.N, s.d)
    k, v = (inputs[name].astype("f8").reshape(-1, 1, s.keys, s.d) for name in "KV")
    scores = s.factor * (q @ k.swapaxes(2, 3))
    if s.causal:
        scores[..., np.arange(s.keys) > np.arange(s.keys - s.N, s.keys)[:, None]] = -np.inf
    p = np.exp(scores - scores.max(axis=3, keepdims=True))
    o, total = p @ v, p.sum(axis=3, keepdims=True)
    for key in keys:
        at = slice(0, 0) if key is None else slice(key, key + 1)
        own = p[..., at]
        without = (o - own @ v[..., at, :]) / np.maximum(total - own.sum(axis=3, keepdims=True), 1e-300)
        yield without.reshape(s.qkv_shape).astype(inputs["V"].dtype)


@pytest.mark.parametrize("case", LONG)
def test_attention_without_one_of_many_keys_is_refused(case):
    """A key of 8,192 equal ones has 1/8192 of the weight. In 16 bits 16 times as much is allowed."""
    s, rung = LONG[case], find("attention/flash-mma")
    ladder = LADDERS["attention"]
    inputs = inputs_of(
        ladder, s, find("attention/flash-mma-variants" if s.variants else rung.name).build(s, rung.default_tiles)
    )
    ref, scale = ladder.reference(s, **inputs)
    keys = (None, 0, 1, s.keys // 2 - 1, s.keys // 2, s.keys // 3, s.keys - 2, s.keys - 1)
    for key, out in zip(keys, attention_without(s, inputs, keys), strict=True):
        assert agrees(out, ref, scale, rung.tolerance) == (key is None), key


def test_softmax_without_one_of_many_numbers_is_refused():
    s = SoftmaxShape(40, 20_000)
    _, inputs, expected = given(find("softmax/registers"), s)
    x = inputs["x"].astype("f8")
    e = np.exp(x - x.max(axis=1, keepdims=True))
    for column in (0, 1, 7_777, 19_998, 19_999):
        y = (e / (e.sum(axis=1, keepdims=True) - e[:, [column]])).astype("f4")
        y[:, column] = expected["y"][0][:, column]  # only the sum lacks it
        assert not agrees(y, *expected["y"], find("softmax/registers").tolerance), column


def test_cross_entropy_without_one_of_many_classes_is_refused():
    s = CrossEntropyShape(60, 50_257)
    rung = find("cross-entropy/online")
    _, inputs, expected = given(rung, s)
    x = inputs["x"].astype("f8")
    for column in (0, 1, 33_333, s.N - 2, s.N - 1):
        lse = np.log(np.exp(x).sum(axis=1) - np.exp(x[:, column])).astype("f4")
        assert not agrees(lse, *expected["lse"], rung.tolerance), column


def test_sums_without_one_of_many_pixels_are_refused():
    """The gradient of a bias and the mean of batch norm, a million numbers each: one of 1 is less than is allowed."""
    pixels = 4 * 512 * 512
    for rung, shape, tensor, output, count in (
        (find("bias-backward/block"), BiasBackwardShape(4, 8, 512, 512), "dy", "db", 1),
        (find("batch-norm/two-pass"), BatchNormShape(4, 8, 512, 512), "x", "mean", pixels),
    ):
        _, inputs, expected = given(rung, shape)
        by_channel = np.moveaxis(inputs[tensor], 1, 0).reshape(8, pixels)
        ref, scale = expected[output]
        for pixel in (0, 1, 64 * 777, pixels - 2, pixels - 1):
            without = (ref - by_channel[:, pixel].astype("f8") / count).astype("f4")
            assert not agrees(without, ref, scale, rung.tolerance), (rung.name, pixel)


@pytest.mark.parametrize(("name", "side"), [("warp", 400), ("plane", 56)])
def test_a_mean_without_one_of_many_pixels_is_refused(name, side):
    shape, rung = GlobalShape(4, 16, side, side), find(f"global-avg-pool/{name}")
    _, inputs, expected = given(rung, shape)
    planes = inputs["x"].reshape(4, 16, -1).astype("f8")
    ref, scale = expected["y"]
    for pixel in (0, 1, side * side // 3, side * side - 1):
        without = (ref - planes[:, :, pixel] / side**2).astype("f4")
        assert not agrees(without, ref, scale, rung.tolerance), pixel


def test_inputs_that_a_caller_gives_are_not_changed():
    x = np.ones((2, 8), np.float32)
    (result,) = compare(["layer-norm/warp"], LayerNormShape(2, 8), {"x": x}, "emulator", measure=False)
    assert result.outputs["mean"].tolist() == [1, 1] and (x == 1).all()
