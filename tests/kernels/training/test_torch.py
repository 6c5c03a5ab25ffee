"""Ten training steps of ours against the same network in PyTorch, from the same start on the same images."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernels.training import step
from kernels.training.loop import Settings, Training
from kernels.training.networks import NETWORKS

pytestmark = pytest.mark.gpu  # only the machine with a GPU has PyTorch
STEPS, BATCH, RATE, MOMENTUM = 10, 32, 0.02, 0.9
LIMIT = 1e-5  # of a weight: the norm of the difference over its own
names = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture
def torch():
    """Returns PyTorch without TF32, whose convolutions give the same bits in every run."""
    module = pytest.importorskip("torch")
    module.backends.cuda.matmul.allow_tf32 = module.backends.cudnn.allow_tf32 = False
    module.backends.cudnn.deterministic, module.backends.cudnn.benchmark = True, False
    return module


def settings(name: str) -> Settings:
    return Settings(name, BATCH, "sgd", {"lr": RATE, "momentum": MOMENTUM}, seed=1)


def weights_of(training: Training) -> dict[str, np.ndarray]:
    graph, _ = training._step()
    flat = training.state().arrays[step.WEIGHTS]
    return {view.name: np.array(view.cut(flat)) for view in graph.views if view.of == step.WEIGHTS}


def ours(name: str, engine: str) -> tuple[dict[str, np.ndarray], list[float]]:
    """Returns our weights after the steps and the loss of each step."""
    training = Training(settings(name), engine)
    losses = [point.loss for point in itertools.islice(training.run(1), STEPS)]
    weights = weights_of(training)
    training.close()
    return weights, losses


def theirs(torch, name: str, device: str, dtype) -> tuple[dict[str, np.ndarray], list[float]]:
    """Returns PyTorch's weights after the steps, in float64 under our names, and the loss of each step."""
    from benchmarks import torch_networks

    training = Training(settings(name))
    first = weights_of(training)
    module = torch_networks.build(name).to(device=device, dtype=dtype)
    torch_networks.load(module, first)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for n in range(STEPS):
        images, labels = training._batch(n)
        x = torch.from_numpy(images).to(device=device, dtype=dtype)
        loss = torch.nn.functional.cross_entropy(module(x), torch.from_numpy(labels).long().to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    arrays = (p.detach().double().cpu().numpy() for p in module.parameters())
    return dict(zip(first, arrays, strict=True)), losses


def distances(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, float]:
    """Returns, of each weight, the norm of the difference over the norm of the second."""
    return {name: float(np.linalg.norm(np.float64(a[name]) - b[name]) / np.linalg.norm(b[name])) for name in b}


@names
@pytest.mark.parametrize("engine", ["cpu", "cuda"])
def test_ten_steps_are_those_of_pytorch(torch, name, engine):
    """PyTorch in float64 judges both: its own float32 differs from it too."""
    device = "cuda" if engine == "cuda" else "cpu"
    found, losses = ours(name, engine)
    rounded, their_losses = theirs(torch, name, device, torch.float32)
    exact, exact_losses = theirs(torch, name, device, torch.float64)
    assert exact_losses[-1] < exact_losses[0]  # it learned
    np.testing.assert_allclose(losses, exact_losses, rtol=1e-4)
    np.testing.assert_allclose(their_losses, exact_losses, rtol=1e-4)
    for judge, what in ((exact, "float64"), (rounded, "float32")):
        wrong = {weight: d for weight, d in distances(found, judge).items() if not d <= LIMIT}
        assert not wrong, (what, wrong, {weight: distances(rounded, exact)[weight] for weight in wrong})


@names
def test_another_rate_would_be_found(torch, name, monkeypatch):
    """The comparison above is sharp: with a rate that differs by a thousandth it fails."""
    exact, _ = theirs(torch, name, "cpu", torch.float64)
    monkeypatch.setitem(globals(), "RATE", 1.001 * RATE)
    other, _ = theirs(torch, name, "cpu", torch.float64)
    assert max(distances(other, exact).values()) > LIMIT


def test_another_network_is_refused(torch):
    from benchmarks import torch_networks

    weights = weights_of(Training(settings("residual")))
    with pytest.raises(ValueError, match="the module has 10 weights, ours are"):
        torch_networks.load(torch_networks.build("lenet5"), weights)
    first, *_ = weights
    with pytest.raises(ValueError, match="cannot be stem"):
        torch_networks.load(torch_networks.build("residual"), weights | {first: np.zeros(3)})
