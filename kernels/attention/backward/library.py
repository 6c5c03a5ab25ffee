"""attention-backward/library*: PyTorch's backward pass of scaled_dot_product_attention, a rung for each backend.

The operators of the backward pass are called directly (torch.ops.aten._scaled_dot_product_*_attention_backward, PyTorch's
native_functions.yaml): autograd does not take part, so no graph is built or searched while time is taken. The forward pass
runs once, before any timing. What it saves is PyTorch's own: its O, its row sums and its random state.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from kernels.attention.backward import common
from kernels.attention.backward.shape import BackwardShape
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.model.program import LibraryCall, Program, Tiles, UnsupportedError
from kernels.model.rung import TENSOR_CORES, Rung

GRADIENTS = "dQ", "dK", "dV"
IDEAS = {  # backend: (suffix of the rung's name, its title, description)
    "EFFICIENT_ATTENTION": (
        "library", mark("PyTorch (memory-efficient)"),
        mark("The backward pass of memory-efficient attention. Nothing N x N is stored. It supports FP32."),
    ),
    "FLASH_ATTENTION": (
        "library-flash", mark("PyTorch (flash)"), mark("FlashAttention-2's backward pass in PyTorch, for 16-bit types only."),
    ),
    "CUDNN_ATTENTION": (
        "library-cudnn", mark("PyTorch (cuDNN)"),
        mark("The backward pass of cuDNN's fused attention, called by PyTorch, for 16-bit types only."),
    ),
}  # fmt: skip


class Backward:
    """The backward pass of one backend on tensors [B, H, N, d] of CuPy, which PyTorch reads in place. PyTorch returns the
    gradients in memory of its own; copy_result copies them to dQ, dK and dV outside of the timing.

    `workspace_bytes`: bytes allocated besides the gradients, reported by PyTorch's allocator for the first call.
    """

    def __init__(self, backend: str, Q, K, V, dO, dQ, dK, dV, scale, causal):
        self.torch, self.backend = torch_library.load(), backend
        tensors = [torch_library.as_tensor(self.torch, array) for array in (Q, K, V, dO, dQ, dK, dV)]
        self._inputs, self._targets = tensors[:4], tensors[4:]
        self._causal, self._scale = bool(causal), float(scale)
        self._call: Callable[[], tuple] | None = None
        self._result: tuple | None = None
        self.workspace_bytes: int | None = None

    def __call__(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            if self._call is None:
                self._first_run()
            else:
                self._run()

    def _run(self) -> None:
        self._result = None  # frees its memory for the next
        self._result = self._call()

    def _first_run(self) -> None:
        """Run the forward pass, then the backward pass once, and measure its memory. UnsupportedError with PyTorch's
        reasons if the backend does not support the shape."""
        cuda = self.torch.cuda
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._check()
            self._call = OPERATORS[self.backend](
                self.torch.ops.aten, *self._inputs, self._causal, self._scale
            )
            cuda.reset_peak_memory_stats()
            self._run()
        except cuda.OutOfMemoryError:
            raise
        except RuntimeError as e:
            if "CUDA error" in str(e):  # a fault, no refusal
                raise
            self._call = None
            reason = torch_library.reasons([str(w.message) for w in caught]) or str(e).partition("\n")[0]
            raise UnsupportedError(
                f"PyTorch {self.torch.__version__} does not support the backward pass of {self.backend} for this "
                f"shape ({reason})"
            ) from None
        self.workspace_bytes = cuda.max_memory_allocated() - cuda.memory_allocated()

    def _check(self) -> None:
        """Run the forward pass as PyTorch's public function does, which says why a backend cannot."""
        attention = self.torch.nn.attention
        with attention.sdpa_kernel(getattr(attention.SDPBackend, self.backend)):
            self.torch.nn.functional.scaled_dot_product_attention(
                *self._inputs[:3], is_causal=self._causal, scale=self._scale
            )

    def copy_result(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            for target, gradient in zip(self._targets, self._result, strict=False):  # the 4th is of a bias
                target.copy_(gradient)


# -- each runs a forward pass and returns its backward pass ---------------------------------------------
def _efficient(aten: Any, q, k, v, grad, causal: bool, scale: float) -> Callable[[], tuple]:
    out, row_sums, seed, offset = aten._scaled_dot_product_efficient_attention(
        q, k, v, None, True, 0.0, causal, scale=scale
    )
    wanted = [True, True, True, False]
    saved = None, out, row_sums, seed, offset, 0.0, wanted, causal
    return partial(aten._scaled_dot_product_efficient_attention_backward, grad, q, k, v, *saved, scale=scale)


def _flash(aten: Any, q, k, v, grad, causal: bool, scale: float) -> Callable[[], tuple]:
    out, row_sums, starts_q, starts_k, max_q, max_k, seed, offset, _ = (
        aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
    )
    saved = out, row_sums, starts_q, starts_k, max_q, max_k, 0.0, causal, seed, offset
    return partial(aten._scaled_dot_product_flash_attention_backward, grad, q, k, v, *saved, scale=scale)


def _cudnn(aten: Any, q, k, v, grad, causal: bool, scale: float) -> Callable[[], tuple]:
    out, row_sums, starts_q, starts_k, max_q, max_k, seed, offset, _ = (
        aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
    )
    saved = out, row_sums, seed, offset, None, starts_q, starts_k, max_q, max_k, 0.0, causal
    return partial(aten._scaled_dot_product_cudnn_attention_backward, grad, q, k, v, *saved, scale=scale)


OPERATORS = {"EFFICIENT_ATTENTION": _efficient, "FLASH_ATTENTION": _flash, "CUDNN_ATTENTION": _cudnn}


def build(backend: str, s: BackwardShape, tiles: Tiles) -> Program:
    scale, causal = common.arguments(s)[-2:]
    args = "Q", "K", "V", "dO", *GRADIENTS, scale, causal
    call = LibraryCall(f"torch_{backend.lower()}_backward", args, None, partial(Backward, backend))
    return Program(common.buffers(s, dots=False), (call,))


def rules(s: BackwardShape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: PyTorch says itself what it supports."""
    return ()


def _rung(backend: str, suffix: str, title: str, idea: str) -> Rung:
    return Rung(
        name=f"attention-backward/{suffix}",
        title=title,
        idea=idea,
        build=partial(build, backend),
        cost=common.library_cost,
        rules=rules,
        tolerance=common.TOLERANCE,
        units=TENSOR_CORES,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )


RUNGS = tuple(_rung(backend, *labels) for backend, labels in IDEAS.items())
