"""The arguments of PyTorch's pooling calls, with fakes of the parts of PyTorch and CuPy that are called."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from kernels.engines import cuda
from kernels.ladders import LADDERS
from kernels.libraries import torch as torch_library
from kernels.machine.status import Status
from kernels.model.program import RuleError
from kernels.model.verify import agrees, by_output
from kernels.pooling import reference
from kernels.pooling.ladder import LADDERS as POOLING
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from kernels.runner import inputs_of, run
from tests.helpers.fake_torch import fake_cuda

SHAPES = {
    "max": MaxPoolShape(2, 3, 9, 7, 3, 2, stride=(2, 1), pad=1, dilation=(1, 2), ceil=1),
    "avg": AvgPoolShape(2, 3, 9, 7, 3, 4, stride=(2, 1), pad=(1, 2), ceil=1, include_pad=0),
    "glo": GlobalShape(2, 3, 5, 7),
}


def copied(target: np.ndarray, source: np.ndarray) -> None:
    target[...] = source


class FakeTensor(np.ndarray):
    copy_ = copied

    def expand(self, shape):
        return np.broadcast_to(self, shape)


def tensor(array) -> FakeTensor:
    return array.view(FakeTensor)


def max_shape(x, window, stride, pad, dilation, ceil) -> MaxPoolShape:
    fields = {"stride": tuple(stride), "pad": tuple(pad), "dilation": tuple(dilation), "ceil": int(ceil)}
    return MaxPoolShape(*x.shape, *window, **fields)


def avg_shape(x, window, stride, pad, ceil, include_pad, divisor) -> AvgPoolShape:
    assert divisor is None and isinstance(ceil, bool) and isinstance(include_pad, bool)
    fields = {"stride": tuple(stride), "pad": tuple(pad), "ceil": int(ceil), "include_pad": int(include_pad)}
    return AvgPoolShape(*x.shape, *window, **fields)


def max_pool(x, *settings, out, indices):
    assert indices.dtype == np.int64
    out[...], indices[...] = reference.maxima(max_shape(x, *settings), x)


def max_pool_backward(dy, x, window, stride, pad, dilation, ceil, indices, *, grad_input):
    assert indices.dtype == np.int64
    s = max_shape(x, window, stride, pad, dilation, ceil)
    grad_input[...], _ = reference.max_pool_backward(s, dy, indices)


def avg_pool(x, *settings, out):
    out[...], _ = reference.avg_pool(avg_shape(x, *settings), x)


def avg_pool_backward(dy, x, *settings, grad_input):
    grad_input[...], _ = reference.avg_pool_backward(avg_shape(x, *settings), dy)


class Context:
    active: tuple[str, ...] = ()

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        Context.active += (self.name,)

    def __exit__(self, *_):
        Context.active = Context.active[:-1]


@pytest.fixture
def torch(monkeypatch):
    aten = types.SimpleNamespace(
        max_pool2d_with_indices=types.SimpleNamespace(out=max_pool),
        max_pool2d_with_indices_backward=types.SimpleNamespace(grad_input=max_pool_backward),
        avg_pool2d=types.SimpleNamespace(out=avg_pool),
        avg_pool2d_backward=types.SimpleNamespace(grad_input=avg_pool_backward),
    )
    fake = types.SimpleNamespace(
        ops=types.SimpleNamespace(aten=aten),
        int64=np.int64,
        from_dlpack=tensor,
        empty_like=lambda like, dtype=None: tensor(np.empty(like.shape, dtype or like.dtype)),
        mean=lambda x, dim, out: copied(out, np.asarray(x).mean(axis=dim)),
        div=lambda dy, by, out: copied(out, dy / by),
        inference_mode=lambda: Context("inference"),
        cuda=fake_cuda(Context),
    )
    stream = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=7))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=stream))
    monkeypatch.setattr(torch_library, "load", lambda: fake)
    return fake


@pytest.mark.parametrize("ladder", POOLING, ids=lambda ladder: ladder.name)
def test_pytorch_computes_the_same_with_the_same_settings(ladder, torch):
    rung, shape = ladder.rungs[-1], SHAPES[ladder.name[:3]]
    program = rung.build(shape, {})
    arrays = inputs_of(ladder, shape, program)
    arrays |= {b.name: np.full(b.shape, -7, b.dtype) for b in program.outputs}
    (step,) = program.steps
    call = step.bind(*(arrays[a] if isinstance(a, str) else np.asarray(a) for a in step.args))
    call()
    getattr(call, "copy_result", lambda: None)()
    inputs = {b.name: arrays[b.name] for b in program.of_role("input")}
    for name, (ref, scale) in by_output(ladder.reference(shape, **inputs), [b.name for b in program.outputs]).items():
        assert agrees(arrays[name], ref, scale, rung.tolerance or 1e-12), name
    own = {"max-pool": 8 * 2 * 3 * shape.P * shape.Q if ladder.name == "max-pool" else 0}.get(ladder.name)
    assert own is None or call.workspace_bytes == own


def test_calls_run_on_our_stream(torch):
    seen = []
    torch.mean = lambda x, dim, out: seen.append(Context.active)
    ladder = LADDERS["global-avg-pool"]
    (step,) = ladder.rungs[-1].build(SHAPES["glo"], {}).steps
    step.bind(np.zeros((2, 3, 5, 7), np.float32), np.zeros((2, 3), np.float32))()
    assert seen == [("stream 7", "inference")]


@pytest.mark.parametrize("ladder", POOLING, ids=lambda ladder: ladder.name)
def test_missing_pytorch_is_explained(ladder, monkeypatch):
    rung, shape = ladder.rungs[-1], SHAPES[ladder.name[:3]]
    assert rung.name.endswith("/library") and rung.engines == ("cuda",)
    monkeypatch.setattr(cuda, "status", lambda: Status(True, "a GPU"))
    monkeypatch.setattr(torch_library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuleError, match="pip install torch installs it"):
        run(rung.name, shape, engine="cuda")
