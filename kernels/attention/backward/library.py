"""attention-backward/library*: PyTorch's backward pass of scaled_dot_product_attention, a rung for each backend.

The operators of the backward pass are called directly (torch.ops.aten._scaled_dot_product_*_attention_backward, PyTorch's
native_functions.yaml): autograd does not take part, so no graph is built or searched while time is taken. The forward pass
runs once, before any timing. What it saves is PyTorch's own: its O, its row sums and its random state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

from kernels.attention.backward import common
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.model.program import LibraryCall, Program, Tiles
from kernels.model.rung import TENSOR_CORES, Rung

GRADIENTS = "dQ", "dK", "dV"
IDEAS = {  # backend: (suffix of the rung's name, its title, description)
    "EFFICIENT_ATTENTION": (
        "library",
        mark("PyTorch (memory-efficient)"),
        mark("The backward pass of memory-efficient attention. Nothing N x N is stored. It supports FP32."),
    ),
    "FLASH_ATTENTION": (
        "library-flash",
        mark("PyTorch (flash)"),
        mark("FlashAttention-2's backward pass in PyTorch, for 16-bit types only."),
    ),
    "CUDNN_ATTENTION": (
        "library-cudnn",
        mark("PyTorch (cuDNN)"),
        mark("The backward pass of cuDNN's fused attention, called by PyTorch, for 16-bit types only."),
    ),
}


class Backward(torch_library.Call):
    """The backward pass of one backend on tensors [B, H, N, d]. PyTorch returns the gradients in memory of its own."""

    def __init__(self, backend: str, Q, K, V, dO, dQ, dK, dV, scale, causal):
        super().__init__(Q, K, V, dO, dQ, dK, dV)
        self._backend, self._causal, self._scale = backend, bool(causal), float(scale)

    def prepare(self) -> None:
        """Run the forward pass as PyTorch's public function does, which says why a backend cannot; then the operator that
        keeps what its backward pass needs."""
        attention, (Q, K, V, dO) = self.torch.nn.attention, self.tensors[:4]
        with attention.sdpa_kernel(getattr(attention.SDPBackend, self._backend)):
            self.torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=self._causal, scale=self._scale)
        self._backward = OPERATORS[self._backend](self.torch.ops.aten, Q, K, V, dO, self._causal, self._scale)

    def run(self) -> tuple:
        return self._backward()

    def refusal(self, error: Exception, messages: Sequence[str]) -> str | None:
        if isinstance(error, self.torch.cuda.OutOfMemoryError) or "CUDA error" in str(error):  # a fault
            return None
        reason = torch_library.reasons(messages) or str(error).partition("\n")[0]
        return f"the backward pass of {self._backend} for this shape ({reason})"

    def copy(self) -> None:
        for target, gradient in zip(self.tensors[4:], self.results, strict=False):  # the 4th is of a bias
            target.copy_(gradient)


# -- each runs a forward pass and returns its backward pass ---------------------------------------------
def _efficient(aten: ModuleType, q, k, v, grad, causal: bool, scale: float) -> Callable[[], tuple]:
    out, row_sums, seed, offset = aten._scaled_dot_product_efficient_attention(
        q, k, v, None, True, 0.0, causal, scale=scale
    )
    wanted = [True, True, True, False]
    saved = None, out, row_sums, seed, offset, 0.0, wanted, causal
    return partial(aten._scaled_dot_product_efficient_attention_backward, grad, q, k, v, *saved, scale=scale)


def _flash(aten: ModuleType, q, k, v, grad, causal: bool, scale: float) -> Callable[[], tuple]:
    out, row_sums, starts_q, starts_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal, False, scale=scale
    )
    saved = out, row_sums, starts_q, starts_k, max_q, max_k, 0.0, causal, seed, offset
    return partial(aten._scaled_dot_product_flash_attention_backward, grad, q, k, v, *saved, scale=scale)


def _cudnn(aten: ModuleType, q, k, v, grad, causal: bool, scale: float) -> Callable[[], tuple]:
    out, row_sums, starts_q, starts_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False, scale=scale
    )
    saved = out, row_sums, seed, offset, None, starts_q, starts_k, max_q, max_k, 0.0, causal
    return partial(aten._scaled_dot_product_cudnn_attention_backward, grad, q, k, v, *saved, scale=scale)


OPERATORS = {"EFFICIENT_ATTENTION": _efficient, "FLASH_ATTENTION": _flash, "CUDNN_ATTENTION": _cudnn}


def build(backend: str, s: AttentionBackwardShape, tiles: Tiles) -> Program:
    scale, causal = common.arguments(s)[-2:]
    args = "Q", "K", "V", "dO", *GRADIENTS, scale, causal
    call = LibraryCall(f"torch_{backend.lower()}_backward", args, None, partial(Backward, backend))
    return Program(common.buffers(s, dots=False), (call,))


def rules(s: AttentionBackwardShape, tiles: Tiles) -> tuple[str, ...]:
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
