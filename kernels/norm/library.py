"""PyTorch's norms and their gradients on arrays of CuPy, on the current stream, and cuDNN's batch norm through PyTorch.

Each class is one operator of ATen. The operators return new arrays. copy_result() copies them outside of the timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernels.libraries.torch import Call
from kernels.model.program import UnsupportedError
from kernels.norm.shape import NHWC


class Operator(Call):
    """One operator of ATen on tensors by name. `copied` names those of its results."""

    copied: tuple[str, ...]

    def __init__(self, **arrays):
        super().__init__(*arrays.values())
        self._of = dict(zip(arrays, self.tensors, strict=True))

    def operator(self, name: str) -> Callable:
        """Returns an operator of ATen. UnsupportedError if this version of PyTorch lacks it."""
        found = getattr(self.torch.ops.aten, name, None)
        if found is None:
            raise UnsupportedError(f"PyTorch {self.torch.__version__} has no operator {name}")
        return found

    def refusal(self, error: Exception, messages: Sequence[str]) -> str:
        return f"this call ({str(error).splitlines()[0]})"

    def copy(self) -> None:
        for name, result in zip(self.copied, self.results, strict=False):
            self._of[name].copy_(result.reshape(self._of[name].shape))


class _Maps(Operator):
    """An operator on maps: PyTorch sees [N, C, H, W] in each layout, with NHWC as the format channels_last."""

    def __init__(self, layout: str, **arrays):
        self._channels_last = layout == NHWC
        super().__init__(**arrays)

    def tensor(self, array):
        tensor = super().tensor(array)
        return tensor.permute(0, 3, 1, 2) if self._channels_last and array.ndim == 4 else tensor


class BatchNorm(_Maps):
    """Batch norm in training by PyTorch's own kernels."""

    copied = "y", "mean", "invstd"

    def __init__(self, layout, x, gamma, beta, y, mean, invstd, eps):
        super().__init__(layout, x=x, gamma=gamma, beta=beta, y=y, mean=mean, invstd=invstd)
        self._eps = float(eps)

    def run(self):
        x, gamma, beta = (self._of[name] for name in ("x", "gamma", "beta"))
        return self.operator("native_batch_norm")(x, gamma, beta, None, None, True, 0.0, self._eps)


class CudnnBatchNorm(BatchNorm):
    """Batch norm in training by cuDNN, called through PyTorch. It saves 1 / std too."""

    def run(self):
        x, gamma, beta = (self._of[name] for name in ("x", "gamma", "beta"))
        return self.operator("cudnn_batch_norm")(x, gamma, beta, None, None, True, 0.0, self._eps)[:3]


class BatchNormInference(_Maps):
    copied = ("y",)

    def __init__(self, layout, x, gamma, beta, mean, var, y, eps):
        super().__init__(layout, x=x, gamma=gamma, beta=beta, mean=mean, var=var, y=y)
        self._eps = float(eps)

    def run(self):
        of = self._of
        results = self.operator("native_batch_norm")(
            of["x"], of["gamma"], of["beta"], of["mean"], of["var"], False, 0.0, self._eps
        )
        return results[:1]


class BatchNormBackward(_Maps):
    copied = "dx", "dgamma", "dbeta"

    def __init__(self, layout, dy, x, gamma, mean, invstd, dx, dgamma, dbeta, eps):
        arrays = {"dy": dy, "x": x, "gamma": gamma, "mean": mean, "invstd": invstd}
        super().__init__(layout, **arrays, dx=dx, dgamma=dgamma, dbeta=dbeta)
        self._eps = float(eps)

    def run(self):
        dy, x, gamma, mean, invstd = (self._of[n] for n in ("dy", "x", "gamma", "mean", "invstd"))
        return self.operator("native_batch_norm_backward")(
            dy, x, gamma, None, None, mean, invstd, True, self._eps, [True] * 3
        )


class LayerNorm(Operator):
    copied = "y", "mean", "invstd"

    def __init__(self, x, gamma, beta, y, mean, invstd, eps):
        super().__init__(x=x, gamma=gamma, beta=beta, y=y, mean=mean, invstd=invstd)
        self._eps = float(eps)

    def run(self):
        x, gamma, beta = (self._of[name] for name in ("x", "gamma", "beta"))
        return self.operator("native_layer_norm")(x, list(gamma.shape), gamma, beta, self._eps)


class LayerNormBackward(Operator):
    """PyTorch wants beta too, but uses only its type and size: it gets gamma."""

    copied = "dx", "dgamma", "dbeta"

    def __init__(self, dy, x, gamma, mean, invstd, dx, dgamma, dbeta):
        arrays = {"dy": dy, "x": x, "gamma": gamma, "mean": mean, "invstd": invstd}
        super().__init__(**arrays, dx=dx, dgamma=dgamma, dbeta=dbeta)

    def run(self):
        dy, x, gamma = (self._of[n] for n in ("dy", "x", "gamma"))
        mean, invstd = (self._of[n].reshape(-1, 1) for n in ("mean", "invstd"))
        return self.operator("native_layer_norm_backward")(
            dy, x, list(gamma.shape), mean, invstd, gamma, gamma, [True] * 3
        )


class RmsNorm(Operator):
    copied = "y", "invrms"

    def __init__(self, x, gamma, y, invrms, eps):
        super().__init__(x=x, gamma=gamma, y=y, invrms=invrms)
        self._eps = float(eps)

    def run(self):
        x, gamma = self._of["x"], self._of["gamma"]
        return self.operator("_fused_rms_norm")(x, list(gamma.shape), gamma, self._eps)


class RmsNormBackward(Operator):
    copied = "dx", "dgamma"

    def __init__(self, dy, x, gamma, invrms, dx, dgamma):
        super().__init__(dy=dy, x=x, gamma=gamma, invrms=invrms, dx=dx, dgamma=dgamma)

    def run(self):
        dy, x, gamma = (self._of[n] for n in ("dy", "x", "gamma"))
        invrms = self._of["invrms"].reshape(-1, 1)
        return self.operator("_fused_rms_norm_backward")(dy, x, list(gamma.shape), invrms, gamma, [True] * 2)
