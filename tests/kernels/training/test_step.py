"""A training step: its gradients against automatic differentiation of the whole network, its programs on the engines."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import ladder_of
from kernels.model.program import INPUT, RuleError
from kernels.training import digits, step
from kernels.training import graph as graphs
from kernels.training.graph import BACKWARD, FORWARD, UPDATE
from kernels.training.networks import IMAGE, NETWORKS, Layer, Network, encoder

RATE = 0.5
EPS = 1e-5  # of batch norm
names = pytest.mark.parametrize("name", NETWORKS)


@cache
def small(name: str, batch: int = 4, on_cpu: bool = True, optimizer: str = "sgd"):
    """Returns (graph, program, inputs) of one step on the first images."""
    factors = (("lr", RATE),) if optimizer == "sgd" else ()
    graph, program = step.cached(name, batch, cpu=on_cpu, optimizer=optimizer, factors=factors)
    training, _ = digits.load(NETWORKS[name].size)
    return graph, program, step.inputs(graph, training.images[:batch], training.labels[:batch], seed=3)


def test_first_weights_have_the_variance_of_he_and_others():
    graph = step.build(NETWORKS["lenet5"], 4, step.ON_CPU)
    flat = step.first_weights(graph)
    (matrix,) = (view for view in graph.views if view.name == "fc1.W" and view.of == step.WEIGHTS)
    assert matrix.cut(flat).var() == pytest.approx(2 / matrix.shape[1], rel=0.05)


# -- the definition, for automatic differentiation -----------------------------------------------------
def forward(network: Network, weights, x):
    """Returns the outputs of a network in float64, written with the operations that autograd differentiates."""
    import autograd.numpy as np
    from autograd.tracer import getval

    def positive(x):
        return x * (getval(x) > 0)  # the gradient at 0 is 0

    def conv(x, w, b, stride, pad):
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="constant")
        R, S = w.shape[2:]
        P, Q = ((extent - R) // stride + 1 for extent in x.shape[2:])
        total = 0.0 if b is None else b[None, :, None, None]
        for r in range(R):
            for s in range(S):
                part = x[:, :, r : r + stride * (P - 1) + 1 : stride, s : s + stride * (Q - 1) + 1 : stride]
                total = total + np.einsum("ncpq,kc->nkpq", part, w[:, :, r, s])
        return total

    def attention(x, heads, causal=0):
        """Computes one head after another from its columns of each row: queries, keys, values."""
        D, T = x.shape[2] // 3, x.shape[1]
        d, found = D // heads, []
        for head in range(heads):
            q, k, v = (x[:, :, part * D + head * d : part * D + (head + 1) * d] for part in range(3))
            scores = np.einsum("nic,njc->nij", q, k) / d**0.5
            if causal:
                scores = scores + np.where(np.arange(T) > np.arange(T)[:, None], -np.inf, 0.0)
            weights = np.exp(scores - getval(scores).max(axis=2, keepdims=True))
            found.append(np.einsum("nij,njc->nic", weights / np.sum(weights, axis=2, keepdims=True), v))
        return np.concatenate(found, axis=2)

    results, before = {IMAGE: x}, IMAGE
    for layer in network.layers:
        a, *others = (results[n] for n in layer.reads or (before,))
        w, o = (
            {key.rpartition(".")[2]: v for key, v in weights.items() if key.rpartition(".")[0] == layer.name},
            layer.options,
        )
        if layer.kind == "conv":
            y = conv(a, w["w"], w.get("b"), o.get("stride", 1), o.get("pad", 0))
        elif layer.kind == "relu":
            y = positive(a)
        elif layer.kind == "maxpool":
            N, C, H, W = a.shape
            windows = np.transpose(a.reshape(N, C, H // 2, 2, W // 2, 2), (0, 1, 2, 4, 3, 5)).reshape(
                N, C, H // 2, W // 2, 4
            )
            first = np.eye(4)[np.argmax(getval(windows), axis=4)]  # of equal values the first counts
            y = np.sum(windows * first, axis=4)
        elif layer.kind == "average":
            y = np.mean(a, axis=(2, 3))
        elif layer.kind == "batchnorm":
            mean = np.mean(a, axis=(0, 2, 3), keepdims=True)
            variance = np.mean((a - mean) ** 2, axis=(0, 2, 3), keepdims=True)
            y = (a - mean) / np.sqrt(variance + EPS) * w["gamma"][None, :, None, None] + w["beta"][None, :, None, None]
        elif layer.kind == "residual":
            y = positive(a + others[0])
        elif layer.kind == "project":
            y = np.dot(a.reshape(len(a), -1, a.shape[-1]), w["W"].T) + w["b"]
        elif layer.kind == "position":
            y = a + w["w"]
        elif layer.kind == "layernorm":
            mean = np.mean(a, axis=-1, keepdims=True)
            variance = np.mean((a - mean) ** 2, axis=-1, keepdims=True)
            y = (a - mean) / np.sqrt(variance + EPS) * w["gamma"] + w["beta"]
        elif layer.kind == "add":
            y = a + others[0]
        elif layer.kind == "attention":
            y = attention(a, **o)
        else:
            assert layer.kind == "linear"
            y = np.dot(a.reshape(len(a), -1), w["W"].T) + w["b"]
        results[layer.name], before = y, layer.name
    return y


def mean_loss(network, weights, x, labels):
    import autograd.numpy as np

    y = forward(network, weights, x)
    y = y - np.max(y, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(y), axis=1)) - y[np.arange(len(y)), labels])


def weights_of(graph, flat):
    return {v.name: v.cut(flat).astype(np.float64) for v in graph.views if v.of == step.WEIGHTS}


@names
def test_gradients_are_those_of_automatic_differentiation(name):
    import autograd

    graph, _, inputs = small(name)
    values = graphs.reference(graph, ladder_of, inputs)
    weights = weights_of(graph, inputs[step.WEIGHTS])
    x, labels = inputs[IMAGE].astype(np.float64), inputs[step.LABELS]
    loss, gradients = autograd.value_and_grad(lambda w: mean_loss(NETWORKS[name], w, x, labels))(weights)
    np.testing.assert_allclose(values["loss"].mean(), loss, rtol=1e-6)
    for weight, expected in gradients.items():
        actual = values[f"d {weight}"]
        # The factor 1/N is float32 in a step.
        np.testing.assert_allclose(
            actual, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max() + 1e-12, err_msg=weight
        )


def small_transformer(causal: int, rungs):
    """Returns (network, graph, inputs) of a step of one block with tokens of 8 numbers, on one image."""
    layers = (
        Layer("project", "embedding", {"N": 8}),
        Layer("position", "position"),
        *encoder("block", "position", 8, 2, causal),
        Layer("linear", "fc", {"N": 10}),
    )
    network = Network("small", "", 8, 10, layers, "")
    graph = step.build(network, 1, rungs, lr=RATE)
    training, _ = digits.load()
    return network, graph, step.inputs(graph, training.images[:1], training.labels[:1], seed=3)


@pytest.mark.parametrize("causal", [0, 1])
def test_gradients_of_causal_attention_are_those_of_automatic_differentiation(causal):
    import autograd

    network, graph, inputs = small_transformer(causal, step.ON_CPU)
    values = graphs.reference(graph, ladder_of, inputs)
    weights = weights_of(graph, inputs[step.WEIGHTS])
    x, labels = inputs[IMAGE].astype(np.float64), inputs[step.LABELS]
    gradients = autograd.grad(lambda w: mean_loss(network, w, x, labels))(weights)
    # The values that the forward pass keeps, L say, are float64 here.
    for weight, expected in gradients.items():
        near = {"rtol": 1e-6, "atol": 1e-6 * np.abs(expected).max() + 1e-12}
        np.testing.assert_allclose(values[f"d {weight}"], expected, **near, err_msg=weight)
    other = small_transformer(1 - causal, step.ON_CPU)
    others = graphs.reference(other[1], ladder_of, inputs)["d block qkv.W"]
    assert np.abs(others - values["d block qkv.W"]).max() > 1e-3


def test_a_wrong_gradient_would_be_found():
    """The comparison above is sharp: with another loss it fails."""
    import autograd

    graph, _, inputs = small("residual")
    weights = weights_of(graph, inputs[step.WEIGHTS])
    x, labels = inputs[IMAGE].astype(np.float64), (inputs[step.LABELS] + 1) % 10
    gradients = autograd.grad(lambda w: mean_loss(NETWORKS["residual"], w, x, labels))(weights)
    values = graphs.reference(graph, ladder_of, inputs)
    assert np.abs(values["d fc.b"] - gradients["fc.b"]).max() > 0.01


# -- programs ------------------------------------------------------------------------------------------
def assert_step_is_right(session, graph, inputs):
    expected = graphs.reference(graph, ladder_of, inputs)
    session.verify_run()
    np.testing.assert_allclose(session.fetch("loss"), expected["loss"], rtol=1e-5)
    update = np.abs(expected[step.WEIGHTS] - inputs[step.WEIGHTS]).max()
    assert update > 1e-4
    wrong = np.abs(session.fetch(step.WEIGHTS) - expected[step.WEIGHTS]).max()
    assert wrong < 1e-5 * max(1.0, update), (wrong, update)


@names
@pytest.mark.parametrize("on_cpu", [True, False], ids=["processor's rungs", "GPU's rungs"])
def test_a_step_is_right_on_the_processor(name, on_cpu):
    graph, program, inputs = small(name, on_cpu=on_cpu)
    assert_step_is_right(cpu.open(program, inputs), graph, inputs)


def test_a_step_is_right_in_the_emulator():
    graph, program, inputs = small("residual", 2, on_cpu=False)
    session = emulator.Session(program, inputs, Options(races=True, count=False))
    assert_step_is_right(session, graph, inputs)


def test_a_small_transformer_is_right_in_the_emulator():
    _, graph, inputs = small_transformer(1, step.ON_GPU)
    session = emulator.Session(graphs.program(graph, ladder_of), inputs, Options(races=True, count=False))
    assert_step_is_right(session, graph, inputs)


def test_adam_updates_every_weight():
    graph, program, inputs = small("residual", optimizer="adam")
    session = cpu.open(program, inputs)
    session.verify_run()
    expected = graphs.reference(graph, ladder_of, inputs)
    # Its first step moves a weight by the rate, up or down: a gradient near 0 may have either sign.
    clear = np.abs(expected[step.GRADIENTS]) > 1e-4
    moved = session.fetch(step.WEIGHTS) - inputs[step.WEIGHTS]
    np.testing.assert_allclose(np.abs(moved[clear]), 1e-3, rtol=0.02)
    np.testing.assert_allclose(moved[clear], (expected[step.WEIGHTS] - inputs[step.WEIGHTS])[clear], atol=2e-5)


@names
def test_phases_come_in_order_and_every_weight_has_a_gradient(name):
    graph, program, _ = small(name)
    phases = [node.phase for node in graph.nodes]
    assert phases == sorted(phases, key=[FORWARD, BACKWARD, UPDATE].index) and phases.count(UPDATE) == 1
    written = {
        node.tensors[b.name]
        for node in graph.nodes
        for b in graphs.node_program(node, ladder_of).outputs
        if b.name in node.tensors
    }
    weights = [v.name for v in graph.views if v.of == step.WEIGHTS]
    assert all(f"d {name}" in written for name in weights)
    assert {b.name for b in program.in_place} == {step.WEIGHTS, *(t.name for t in graph.of_kind(graphs.STATE))}


def test_lenet_has_the_weights_of_the_paper():
    graph, program, _ = small("lenet5")
    counts = {v.name: int(np.prod(v.shape)) for v in graph.views if v.of == step.WEIGHTS}
    assert counts["conv1.w"] + counts["conv1.b"] == 156  # LeCun et al. 1998, section II.B
    assert counts["fc2.W"] + counts["fc2.b"] == 10164
    assert {b.name for b in program.of_role(INPUT)} == {IMAGE, "labels", "factor", "chunks", "weights", "state v"}


def test_a_gap_between_weights_is_no_weight():
    graph, program, inputs = small("lenet5")
    session = cpu.open(program, inputs)
    session.verify_run()
    inside = np.zeros(inputs[step.WEIGHTS].shape, bool)
    for view in graph.views:
        if view.of == step.WEIGHTS:
            view.cut(inside)[...] = True
    assert not session.fetch(step.WEIGHTS)[~inside].any() and inside.sum() < inside.size


def test_more_images_than_attention_has_blocks_are_refused_with_the_rule():
    most = 65_535 // 4
    assert len(step.build(NETWORKS["transformer"], most, step.ON_GPU, lr=RATE).nodes) > 60
    words = r"attention of 16384 images with 4 heads cannot run: .* <= 65535, got 65536"
    with pytest.raises(RuleError, match=words):
        step.build(NETWORKS["transformer"], most + 1, step.ON_GPU, lr=RATE)
