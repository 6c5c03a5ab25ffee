"""The shape of attention's forward pass in training: it also returns L, from which the backward pass computes the weights."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.attention.shape import FIELDS, SelfAttentionShape
from kernels.model.shape import parse


@dataclass(frozen=True)
class LseShape(SelfAttentionShape):
    """Self-attention and L [B, H, N], float32: the logarithm of each row's sum of exponentials. Fields are those of
    SelfAttentionShape. Raises ShapeError, which names the broken rule."""

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: Q, K and V read once, O and L written once."""
        return super().bytes + 4 * self.heads * self.N

    @property
    def row_shape(self) -> tuple[int, int, int]:
        """Returns the extents of L: a number for each query."""
        return self.B, self.H, self.N


def parse_lse(text: str) -> LseShape:
    """Parse "B=1,H=12,N=1024,d=64,causal=1" into an LseShape. Raises ShapeError if the text is malformed."""
    return LseShape(**parse(text, FIELDS, "BHNd", text_fields=("dtype",), float_fields=("scale",)))
