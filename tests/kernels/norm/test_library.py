"""PyTorch's norms without PyTorch: fakes of its operators check the arguments, the layouts, and where results go."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from kernels.libraries import torch as torch_library
from kernels.model.program import UnsupportedError
from kernels.model.verify import agrees, by_output
from kernels.norm import reference
from kernels.norm.ladder import LADDERS
from kernels.norm.shape import (
    EPS,
    BatchNormBackwardShape,
    BatchNormInferenceShape,
    BatchNormShape,
    LayerNormBackwardShape,
    LayerNormShape,
    RmsNormBackwardShape,
    RmsNormShape,
)
from kernels.runner import inputs_of

LIBRARY = [(ladder, rung) for ladder in LADDERS for rung in ladder.rungs if rung.library]


class Tensor:
    """A tensor of PyTorch as far as the calls use it, on the memory of a NumPy array."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def permute(self, *axes):
        return Tensor(self.array.transpose(axes))

    def reshape(self, *shape):
        return Tensor(self.array.reshape(*shape))

    def copy_(self, other):
        self.array[...] = other.array


class Context:
    active: list[str] = []  # noqa: RUF012  # one list for all contexts

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.active.append(self.name)

    def __exit__(self, *_):
        self.active.remove(self.name)


def results(outputs) -> tuple[Tensor, ...]:
    assert Context.active == ["stream 7", "inference"]
    return tuple(Tensor(ref.astype(np.float32)) for ref, _ in outputs.values())


def native_batch_norm(x, gamma, beta, mean, var, training, momentum, eps):
    assert eps == pytest.approx(EPS) and momentum == 0.0
    arrays = x.array, gamma.array, beta.array
    if training:
        assert mean is None and var is None
        return results(reference.batch_norm(BatchNormShape(*x.shape), *arrays))
    shape = BatchNormInferenceShape(*x.shape)
    y = reference.batch_norm_inference(shape, *arrays, mean.array, var.array)
    return (*results({"y": y}), None, None)


def cudnn_batch_norm(*args):
    return (*native_batch_norm(*args), "reserve")


def native_batch_norm_backward(dy, x, gamma, running_mean, running_var, mean, invstd, training, eps, mask):
    assert running_mean is None and running_var is None and training and mask == [True] * 3
    assert eps == pytest.approx(EPS)
    arrays = (t.array for t in (dy, x, gamma, mean, invstd))
    return results(reference.batch_norm_backward(BatchNormBackwardShape(*x.shape), *arrays))


def native_layer_norm(x, shape, gamma, beta, eps):
    assert shape == [x.shape[1]] and eps == pytest.approx(EPS)
    y, mean, invstd = results(reference.layer_norm(LayerNormShape(*x.shape), x.array, gamma.array, beta.array))
    return y, mean.reshape(-1, 1), invstd.reshape(-1, 1)  # as PyTorch returns them


def native_layer_norm_backward(dy, x, shape, mean, invstd, gamma, beta, mask):
    assert shape == [x.shape[1]] and mean.shape == invstd.shape == (x.shape[0], 1)
    assert beta.shape == gamma.shape and mask == [True] * 3
    saved = mean.array[:, 0], invstd.array[:, 0]
    shape = LayerNormBackwardShape(*x.shape)
    return results(reference.layer_norm_backward(shape, dy.array, x.array, gamma.array, *saved))


def _fused_rms_norm(x, shape, gamma, eps):
    assert shape == [x.shape[1]] and eps == pytest.approx(EPS)
    y, invrms = results(reference.rms_norm(RmsNormShape(*x.shape), x.array, gamma.array))
    return y, invrms.reshape(-1, 1)


def _fused_rms_norm_backward(dy, x, shape, invrms, gamma, mask):
    assert shape == [x.shape[1]] and invrms.shape == (x.shape[0], 1) and mask == [True] * 2
    arrays = dy.array, x.array, gamma.array, invrms.array[:, 0]
    return results(reference.rms_norm_backward(RmsNormBackwardShape(*x.shape), *arrays))


OPERATORS = (
    native_batch_norm,
    cudnn_batch_norm,
    native_batch_norm_backward,
    native_layer_norm,
    native_layer_norm_backward,
    _fused_rms_norm,
    _fused_rms_norm_backward,
)


@pytest.fixture
def torch(monkeypatch):
    """Returns a fake of PyTorch with these operators, on CuPy's stream 7."""
    cuda = types.SimpleNamespace(
        stream=Context,
        ExternalStream=lambda ptr: f"stream {ptr}",
        reset_peak_memory_stats=lambda: None,
        max_memory_allocated=lambda: 1000,
        memory_allocated=lambda: 400,
    )
    fake = types.SimpleNamespace(
        __version__="2.fake",
        cuda=cuda,
        from_dlpack=Tensor,
        inference_mode=lambda: Context("inference"),
        ops=types.SimpleNamespace(aten=types.SimpleNamespace(**{f.__name__: f for f in OPERATORS})),
    )
    stream = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=7))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=stream))
    monkeypatch.setattr(torch_library, "load", lambda: fake)
    return fake


def bound(ladder, rung, shape):
    """Returns (call, arrays by name) of a library's rung, its outputs filled with NaN."""
    program = rung.build(shape, {})
    (step,) = program.steps
    arrays = inputs_of(ladder, shape, program)
    arrays |= {b.name: np.full(b.shape, np.nan, np.float32) for b in program.outputs}
    return step.bind(*(arrays[a] if isinstance(a, str) else a for a in step.args)), arrays


@pytest.mark.parametrize(("ladder", "rung"), LIBRARY, ids=lambda of: of.name)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_results_are_those_of_the_ladder_in_its_layout(torch, ladder, rung, layout):
    shape = ladder.shape(2, 3, 4, 5, layout) if ladder.name.startswith("batch") else ladder.shape(4, 9)
    call, arrays = bound(ladder, rung, shape)
    for _ in range(2):  # the first call measures memory
        call()
        call.copy_result()
    outputs = tuple(b.name for b in rung.build(shape, {}).outputs)
    inputs = {name: a for name, a in arrays.items() if name not in outputs}
    for name, (ref, scale) in by_output(ladder.reference(shape, **inputs), outputs).items():
        assert agrees(arrays[name], ref, scale, rung.tolerance), name
    assert call.workspace_bytes == 600 and not Context.active


@pytest.mark.parametrize(("ladder", "rung"), LIBRARY, ids=lambda of: of.name)
def test_a_missing_operator_is_named(torch, ladder, rung):
    torch.ops.aten = types.SimpleNamespace()
    call, _ = bound(ladder, rung, next(iter(ladder.presets.values())).shape)
    with pytest.raises(UnsupportedError, match=r"PyTorch 2.fake has no operator \w+"):
        call()


def test_a_refusal_quotes_pytorch(torch):
    def refused(*args):
        raise RuntimeError("CUDNN_STATUS_NOT_SUPPORTED\nmore")

    torch.ops.aten.cudnn_batch_norm = refused
    ladder, rung = next((lad, r) for lad, r in LIBRARY if r.name == "batch-norm/cudnn")
    call, _ = bound(ladder, rung, ladder.presets["batch-norm-toy"].shape)
    with pytest.raises(
        UnsupportedError, match=r"PyTorch 2.fake does not support this call \(CUDNN_STATUS_NOT_SUPPORTED\)$"
    ):
        call()


def test_libraries_run_on_the_gpu_only():
    assert {rung.engines for _, rung in LIBRARY} == {("cuda",)}
    assert {rung.library for _, rung in LIBRARY} == {"PyTorch", "cuDNN"}
