"""fusion/torch without a GPU: PyTorch is called for each block once, in order, with the block's options. Its memory is
reported separately from the result."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from kernels.engines import cpu, emulator
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion import library as fusion_library
from kernels.fusion.reference import TOLERANCE
from kernels.fusion.shape import ChainShape
from kernels.libraries import torch as torch_library
from kernels.model.program import INPUT, RuleError
from kernels.model.verify import agrees
from kernels.runner import run, seeded_inputs

(TORCH,) = fusion_library.RUNGS
EVERY = ChainShape(
    2, 3, 9, 8, "conv:K=4:R=3:stride=2 bias bn:eps=0.01 relu add maxpool:3:stride=1:pad=1 avgpool:2:stride=1 gap"
)
ONE_BY_ONE = ("relu", "bias", "bn", "add", "gap", "maxpool:2", "avgpool:3:pad=1", "conv:K=2:R=3:pad=0")


class Tensor(np.ndarray):
    """The part of a tensor that the code uses: an array whose mean can keep its axes."""

    def mean(self, axes, keepdim):
        return np.mean(np.asarray(self), axis=axes, keepdims=keepdim).view(Tensor)

    def copy_(self, other):
        self[...] = other


def windows(x, R, stride, pad, fill=0.0):
    padded = np.pad(np.asarray(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return sliding_window_view(padded, (R, R), axis=(2, 3))[:, :, ::stride, ::stride]


def conv2d(x, w, stride, padding):
    return np.einsum("ncpqrt,kcrt->nkpq", windows(x, w.shape[2], stride, padding), w).view(Tensor)


def batch_norm(x, mean, var, weight, bias, eps):
    gain, mean, bias = (a[:, None, None] for a in (weight / np.sqrt(var + np.float32(eps)), mean, bias))
    return (x - mean) * gain + bias


class PyTorch:
    """The PyTorch functions that a chain uses, in NumPy, with PyTorch's signatures. `allocated` are its bytes, `result_bytes`
    those of the chain's maps."""

    result_bytes = 0

    def __init__(self):
        self.calls: list[str] = []
        self.allocated = self.peak = 1000
        functions = {
            "conv2d": conv2d,
            "batch_norm": batch_norm,
            "relu": lambda x: np.maximum(x, 0),
            "max_pool2d": lambda x, R, stride, pad: windows(x, R, stride, pad, -np.inf).max((4, 5)).view(Tensor),
            "avg_pool2d": lambda x, R, stride, pad: windows(x, R, stride, pad).mean((4, 5)).view(Tensor),
        }
        functional = {name: self._recorded(name, function) for name, function in functions.items()}
        self.nn = SimpleNamespace(functional=SimpleNamespace(**functional))
        self.cuda = SimpleNamespace(
            reset_peak_memory_stats=lambda: setattr(self, "peak", self.allocated),
            memory_allocated=lambda: self.allocated + self.result_bytes,
            max_memory_allocated=lambda: self.peak,
        )

    def _recorded(self, name, function):
        def call(*args, **kwargs):
            self.calls.append(name)
            out = function(*args, **kwargs)
            self.peak = max(self.peak, self.allocated + 2 * out.nbytes)
            return out

        return call

    inference_mode = staticmethod(contextlib.nullcontext)


@pytest.fixture
def torch(monkeypatch):
    fake = PyTorch()
    monkeypatch.setattr(torch_library, "load", lambda: fake)
    monkeypatch.setattr(torch_library, "as_tensor", lambda torch, array: array.view(Tensor))
    monkeypatch.setattr(torch_library, "on_current_stream", lambda torch: contextlib.nullcontext())
    return fake


def bound_call(s: ChainShape):
    """Returns (the call, its arrays by name), bound as by the cuda engine."""
    program = TORCH.build(s, {})
    (step,) = program.steps
    arrays = seeded_inputs(program.of_role(INPUT)) | {"y": np.full(s.y_shape, np.nan, "f4")}
    return step.bind(*(arrays[a] if isinstance(a, str) else a for a in step.args)), arrays


@pytest.mark.parametrize("chain", [EVERY.chain, *ONE_BY_ONE])
def test_it_computes_the_chain(torch, chain):
    s = EVERY.with_(chain=chain)
    call, arrays = bound_call(s)
    for _ in range(2):
        call()
    assert np.isnan(arrays["y"]).all()  # the timed part writes to PyTorch's memory
    call.copy_result()
    ref, scale = fusion_ladder.LADDER.reference(s, **{name: a for name, a in arrays.items() if name != "y"})
    assert agrees(np.asarray(arrays["y"]), ref, scale, TOLERANCE)


def test_scale_allows_transform_errors_only_after_convolutions():
    s = EVERY.with_(chain="bias relu conv:K=2:R=1 bn")
    inputs = seeded_inputs([b for b in fusion_ladder.parts.buffers(s) if b.role == INPUT])
    np.testing.assert_array_equal(TORCH.scale(s, {}, inputs), fusion_ladder.LADDER.reference(s, **inputs)[1])
    at_3 = EVERY.with_(chain="conv:K=2:R=3")
    inputs = seeded_inputs([b for b in fusion_ladder.parts.buffers(at_3) if b.role == INPUT])
    _, scale = fusion_ladder.LADDER.reference(at_3, **inputs)
    bound = np.abs(inputs["x"]).max((2, 3)) @ np.abs(inputs["w"]).sum((2, 3)).T
    np.testing.assert_allclose(
        TORCH.scale(at_3, {}, inputs) - scale, np.broadcast_to(5 * bound[:, :, None, None], scale.shape), rtol=1e-6
    )


def test_each_block_is_called_once_and_memory_is_reported(torch):
    call, _ = bound_call(EVERY)
    torch.result_bytes = 4 * np.prod(EVERY.y_shape)
    call()
    assert torch.calls == ["conv2d", "batch_norm", "relu", "max_pool2d", "avg_pool2d"]
    max_bytes = 4 * max(np.prod(stage.after) for stage in EVERY.stages)
    assert call.workspace_bytes == 2 * max_bytes - 4 * np.prod(EVERY.y_shape)
    own_bytes = call.workspace_bytes
    call()
    assert call.workspace_bytes == own_bytes


def test_only_the_cuda_engine_runs_it():
    program = TORCH.build(EVERY, {})
    for engine, name in ((cpu, "cpu"), (emulator, "emulator")):
        with pytest.raises(RuleError, match=f"is a library of the GPU: the cuda engine runs it, not {name}"):
            engine.open(program, {})
    cost = TORCH.cost(EVERY, program)
    unfused = fusion_ladder.RUNGS[0]
    assert cost.workspace_bytes is None
    assert (cost.flops, cost.bytes) == (
        EVERY.flops,
        unfused.cost(EVERY, unfused.build(EVERY, {"BLOCK": 256, "FOURS": 1})).bytes,
    )


def test_missing_pytorch_is_explained(monkeypatch):
    monkeypatch.setattr(torch_library.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("kernels.engines.cuda.status", lambda: SimpleNamespace(ready=True, text="a GPU"))
    with pytest.raises(RuleError, match=r"fusion/torch cannot run .*PyTorch was not found .*pip install torch"):
        run(TORCH.name, EVERY, engine="cuda")
