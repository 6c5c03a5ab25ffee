"""The shape of attention's backward pass: dQ, dK and dV from Q, K, V, dO and what the forward pass saved.

Names follow FlashAttention-2 (arXiv 2307.08691): O the output, L the logarithm of each row's sum of exponentials.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.attention.shape import FIELDS, SelfAttentionShape
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.shape import parse

PRODUCTS = 5  # S = Q K^T, dP = dO V^T, dV = P^T dO, dQ = dS K, dK = dS^T Q


@dataclass(frozen=True)
class AttentionBackwardShape(SelfAttentionShape):
    """The gradients of self-attention. Q, K, V, O, dO and dQ, dK, dV are [B, H, N, d] of type `dtype`, L is float32
    [B, H, N]. Fields are those of SelfAttentionShape. flash-wgmma needs d in multiples of 8. Raises ShapeError, which names the broken rule."""

    @property
    def macs(self) -> int:
        """Multiply-adds of the five products for the visible pairs, P computed again from L."""
        return PRODUCTS * self.pairs * self.d

    @property
    def elements(self) -> dict[str, int]:
        return dict.fromkeys(("Q", "K", "V", "O", "dO", "dQ", "dK", "dV"), self.heads * self.N * self.d)

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: Q, K, V, O, dO and L read once, dQ, dK and dV written once."""
        return ELEMENT_BYTES[self.dtype] * sum(self.elements.values()) + 4 * self.heads * self.N

    @property
    def row_shape(self) -> tuple[int, int, int]:
        """Returns the extents of L and D: a number for each query."""
        return self.B, self.H, self.N


def parse_backward(text: str) -> AttentionBackwardShape:
    """Parse "B=1,H=12,N=1024,d=64,causal=1,dtype=fp16" into an AttentionBackwardShape. Raises ShapeError if it is malformed."""
    return AttentionBackwardShape(**parse(text, FIELDS, "BHNd", text_fields=("dtype",), float_fields=("scale",)))
