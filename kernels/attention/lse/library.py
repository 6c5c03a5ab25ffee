"""attention-lse/library: PyTorch's memory-efficient attention with its row sums, as its autograd calls it in training.

The operator (torch.ops.aten._scaled_dot_product_efficient_attention) returns O and L in memory of its own; copy_result
copies them to ours outside of the timing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.attention.common import TOLERANCE
from kernels.attention.lse import common
from kernels.attention.lse.shape import LseShape
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.model.program import LibraryCall, Program, Tiles, UnsupportedError
from kernels.model.rung import TENSOR_CORES, Cost, Rung


class Forward:
    """The call on tensors [B, H, N, d] of CuPy, which PyTorch reads in place. UnsupportedError with PyTorch's reason if it
    does not support the shape.

    `workspace_bytes`: bytes allocated besides O and L, reported by PyTorch's allocator for the first call.
    """

    def __init__(self, Q: Any, K: Any, V: Any, O: Any, L: Any, scale: Any, causal: Any):  # noqa: E741
        self.torch = torch_library.load()
        *self._inputs, self._o, self._l = (
            torch_library.as_tensor(self.torch, array) for array in (Q, K, V, O, L)
        )
        self._causal, self._scale = bool(causal), float(scale)
        self._result: tuple | None = None
        self.workspace_bytes: int | None = None

    def __call__(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            if self.workspace_bytes is None:
                self._first_run()
            else:
                self._run()

    def _run(self) -> None:
        self._result = None  # frees its memory for the next
        operator = self.torch.ops.aten._scaled_dot_product_efficient_attention
        self._result = operator(*self._inputs, None, True, 0.0, self._causal, scale=self._scale)

    def _first_run(self) -> None:
        cuda = self.torch.cuda
        before = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        try:
            self._run()
        except cuda.OutOfMemoryError:
            raise
        except RuntimeError as e:
            if "CUDA error" in str(e):  # a fault, no refusal
                raise
            reason = str(e).partition("\n")[0]
            raise UnsupportedError(
                f"PyTorch {self.torch.__version__} does not support memory-efficient attention for this shape ({reason})"
            ) from None
        kept = sum(t.numel() * t.element_size() for t in self._result[:2])
        self.workspace_bytes = max(cuda.max_memory_allocated() - before - kept, 0)

    def copy_result(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            out, row_sums = self._result[:2]
            self._o.copy_(out)
            self._l.copy_(row_sums[..., : self._l.shape[-1]])  # PyTorch pads rows to a multiple of 32


def build(s: LseShape, tiles: Tiles) -> Program:
    args = *common.TENSORS, np.float32(s.factor), np.int32(s.causal)
    return Program(common.buffers(s), (LibraryCall("torch_efficient_attention_lse", args, None, Forward),))


def rules(s: LseShape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: PyTorch says itself what it supports."""
    return ()


def cost(s: LseShape, program: Program) -> Cost:
    """Returns the FLOPs of the visible pairs and the bytes of the tensors. PyTorch's workspace is not known ahead."""
    return Cost(s.flops, s.bytes, None)


LIBRARY = Rung(
    name="attention-lse/library",
    title=mark("PyTorch (memory-efficient)"),
    idea=mark(
        "Memory-efficient attention with its row sums, as PyTorch’s autograd calls it in training, in FP32."
    ),
    build=build,
    cost=cost,
    rules=rules,
    tolerance=TOLERANCE,
    units=TENSOR_CORES,  # FP32 as three TF32 products
    library="PyTorch",
    find_library=lambda: torch_library.find(),
    engines=("cuda",),
)
