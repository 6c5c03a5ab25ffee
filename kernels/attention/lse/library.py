"""attention-lse/library: PyTorch's memory-efficient attention with its row sums, as its autograd calls it in training.

The operator (torch.ops.aten._scaled_dot_product_efficient_attention) returns O and L in memory of its own; copy_result
copies them to ours outside of the timing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.attention.common import TOLERANCE
from kernels.attention.lse import common
from kernels.attention.lse.shape import LseShape
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.model.program import LibraryCall, Program, Tiles
from kernels.model.rung import TENSOR_CORES, Cost, Rung


class Forward(torch_library.Call):
    """The call on tensors [B, H, N, d]."""

    def __init__(self, Q: object, K: object, V: object, O: object, L: object, scale: float, causal: int):  # noqa: E741
        super().__init__(Q, K, V, O, L)
        self._causal, self._scale = bool(causal), float(scale)

    def run(self) -> tuple:
        operator = self.torch.ops.aten._scaled_dot_product_efficient_attention
        return operator(*self.tensors[:3], None, True, 0.0, self._causal, scale=self._scale)[:2]

    def refusal(self, error: Exception, messages: Sequence[str]) -> str | None:
        if isinstance(error, self.torch.cuda.OutOfMemoryError) or "CUDA error" in str(error):  # a fault
            return None
        return "memory-efficient attention for this shape ({})".format(str(error).partition("\n")[0])

    def copy(self) -> None:
        *_, out, row_sums = self.tensors
        found, sums = self.results
        out.copy_(found)
        row_sums.copy_(sums[..., : row_sums.shape[-1]])  # PyTorch pads rows to a multiple of 32


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
    idea=mark("Memory-efficient attention with its row sums, as PyTorch’s autograd calls it in training, in FP32."),
    build=build,
    cost=cost,
    rules=rules,
    tolerance=TOLERANCE,
    units=TENSOR_CORES,  # FP32 as three TF32 products
    library="PyTorch",
    find_library=lambda: torch_library.find(),
    engines=("cuda",),
)
