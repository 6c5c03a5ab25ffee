"""PyTorch's norms and their gradients on arrays of CuPy, on the current stream, and cuDNN's batch norm through PyTorch.

Each class is one operator of ATen. The operators return new arrays. copy_result() copies them outside of the timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.libraries import torch as torch_library
from kernels.model.program import UnsupportedError
from kernels.norm.shape import NHWC


class Operator:
    """One operator on tensors that share the memory of CuPy's arrays.

    `own_bytes` are those that PyTorch's allocator reports for the first call, apart from the results."""

    results: tuple[str, ...]  # of its arguments

    def __init__(self, **arrays):
        self.torch = torch_library.load()
        self._of = {name: self._tensor(array) for name, array in arrays.items()}
        self._results: tuple = ()
        self.workspace_bytes: int | None = None

    def _tensor(self, array):
        return torch_library.as_tensor(self.torch, array)

    def call(self) -> tuple[Any, ...]:
        """Returns the results in the order of `results`."""
        raise NotImplementedError

    def operator(self, name: str) -> Callable:
        """Returns an operator of ATen. UnsupportedError if this version of PyTorch lacks it."""
        found = getattr(self.torch.ops.aten, name, None)
        if found is None:
            raise UnsupportedError(f"PyTorch {self.torch.__version__} has no operator {name}")
        return found

    def __call__(self) -> None:
        with torch_library.on_current_stream(self.torch):
            self._results = ()  # frees their memory for the next
            if self.workspace_bytes is not None:
                with self.torch.inference_mode():
                    self._results = self.call()
                return
            self._first_call()

    def _first_call(self) -> None:
        cuda = self.torch.cuda
        cuda.reset_peak_memory_stats()
        try:
            with self.torch.inference_mode():
                self._results = self.call()
        except (RuntimeError, AttributeError) as e:
            raise UnsupportedError(f"PyTorch {self.torch.__version__}: {str(e).splitlines()[0]}") from None
        self.workspace_bytes = max(cuda.max_memory_allocated() - cuda.memory_allocated(), 0)

    def copy_result(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            for name, result in zip(self.results, self._results, strict=False):
                self._of[name].copy_(result.reshape(self._of[name].shape))


class _Maps(Operator):
    """An operator on maps: PyTorch sees [N, C, H, W] in each layout, with NHWC as the format channels_last."""

    def __init__(self, layout: str, **arrays):
        self._channels_last = layout == NHWC
        super().__init__(**arrays)

    def _tensor(self, array):
        tensor = super()._tensor(array)
        return tensor.permute(0, 3, 1, 2) if self._channels_last and array.ndim == 4 else tensor


class BatchNorm(_Maps):
    """Batch norm in training by PyTorch's own kernels."""

    results = "y", "mean", "invstd"

    def __init__(self, layout, x, gamma, beta, y, mean, invstd, eps):
        super().__init__(layout, x=x, gamma=gamma, beta=beta, y=y, mean=mean, invstd=invstd)
        self._eps = float(eps)

    def call(self):
        x, gamma, beta = (self._of[name] for name in ("x", "gamma", "beta"))
        return self.operator("native_batch_norm")(x, gamma, beta, None, None, True, 0.0, self._eps)


class CudnnBatchNorm(BatchNorm):
    """Batch norm in training by cuDNN, called through PyTorch. It saves 1 / std too."""

    def call(self):
        x, gamma, beta = (self._of[name] for name in ("x", "gamma", "beta"))
        return self.operator("cudnn_batch_norm")(x, gamma, beta, None, None, True, 0.0, self._eps)[:3]


class BatchNormInference(_Maps):
    results = ("y",)

    def __init__(self, layout, x, gamma, beta, mean, var, y, eps):
        super().__init__(layout, x=x, gamma=gamma, beta=beta, mean=mean, var=var, y=y)
        self._eps = float(eps)

    def call(self):
        of = self._of
        results = self.operator("native_batch_norm")(
            of["x"], of["gamma"], of["beta"], of["mean"], of["var"], False, 0.0, self._eps
        )
        return results[:1]


class BatchNormBackward(_Maps):
    results = "dx", "dgamma", "dbeta"

    def __init__(self, layout, dy, x, gamma, mean, invstd, dx, dgamma, dbeta, eps):
        arrays = {"dy": dy, "x": x, "gamma": gamma, "mean": mean, "invstd": invstd}
        super().__init__(layout, **arrays, dx=dx, dgamma=dgamma, dbeta=dbeta)
        self._eps = float(eps)

    def call(self):
        dy, x, gamma, mean, invstd = (self._of[n] for n in ("dy", "x", "gamma", "mean", "invstd"))
        return self.operator("native_batch_norm_backward")(
            dy, x, gamma, None, None, mean, invstd, True, self._eps, [True] * 3
        )


class LayerNorm(Operator):
    results = "y", "mean", "invstd"

    def __init__(self, x, gamma, beta, y, mean, invstd, eps):
        super().__init__(x=x, gamma=gamma, beta=beta, y=y, mean=mean, invstd=invstd)
        self._eps = float(eps)

    def call(self):
        x, gamma, beta = (self._of[name] for name in ("x", "gamma", "beta"))
        return self.operator("native_layer_norm")(x, list(gamma.shape), gamma, beta, self._eps)


class LayerNormBackward(Operator):
    """PyTorch wants beta too, but uses only its type and size: it gets gamma."""

    results = "dx", "dgamma", "dbeta"

    def __init__(self, dy, x, gamma, mean, invstd, dx, dgamma, dbeta):
        arrays = {"dy": dy, "x": x, "gamma": gamma, "mean": mean, "invstd": invstd}
        super().__init__(**arrays, dx=dx, dgamma=dgamma, dbeta=dbeta)

    def call(self):
        dy, x, gamma = (self._of[n] for n in ("dy", "x", "gamma"))
        mean, invstd = (self._of[n].reshape(-1, 1) for n in ("mean", "invstd"))
        return self.operator("native_layer_norm_backward")(
            dy, x, list(gamma.shape), mean, invstd, gamma, gamma, [True] * 3
        )


class RmsNorm(Operator):
    results = "y", "invrms"

    def __init__(self, x, gamma, y, invrms, eps):
        super().__init__(x=x, gamma=gamma, y=y, invrms=invrms)
        self._eps = float(eps)

    def call(self):
        x, gamma = self._of["x"], self._of["gamma"]
        return self.operator("_fused_rms_norm")(x, list(gamma.shape), gamma, self._eps)


class RmsNormBackward(Operator):
    results = "dx", "dgamma"

    def __init__(self, dy, x, gamma, invrms, dx, dgamma):
        super().__init__(dy=dy, x=x, gamma=gamma, invrms=invrms, dx=dx, dgamma=dgamma)

    def call(self):
        dy, x, gamma = (self._of[n] for n in ("dy", "x", "gamma"))
        invrms = self._of["invrms"].reshape(-1, 1)
        return self.operator("_fused_rms_norm_backward")(dy, x, list(gamma.shape), invrms, gamma, [True] * 2)
