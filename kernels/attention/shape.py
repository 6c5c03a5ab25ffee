"""The shape of attention: O = softmax(scale * Q K^T) V for each head of each image or sentence of a batch.

Names follow FlashAttention (arXiv 2205.14135): N queries and keys, head size d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.shape import Shape, factor, flag, integer, one_of, parse

DTYPES = ("fp32", "fp16", "bf16")  # of Q, K, V and O
FIELDS = "B H N d causal scale dtype".split()


@dataclass(frozen=True)
class AttentionShape(Shape):
    """Self-attention: Q, K, V and O [B, H, N, d], row-major, all of one type.

    B sequences of H heads, N queries and keys each, head size d. `causal` (1 or 0): query i sees only keys 0 .. i.
    `scale` multiplies the scores; 0 means the default 1/sqrt(d). `dtype` is "fp32", "fp16" or "bf16".

    Raises ShapeError, which names the broken rule.
    """

    B: int
    H: int
    N: int
    d: int
    causal: int = 0
    scale: float = 0.0
    dtype: str = "fp32"

    def __post_init__(self):
        self._check("BHNd", integer, 1)
        self._check(("causal",), flag)
        self._check(("scale",), factor)
        self._check(("dtype",), one_of, DTYPES)

    @property
    def heads(self) -> int:
        """Number of heads in the whole batch. Each is computed independently."""
        return self.B * self.H

    @property
    def factor(self) -> float:
        """Factor of the scores."""
        return self.scale or 1 / math.sqrt(self.d)

    @property
    def qkv_shape(self) -> tuple[int, int, int, int]:
        return self.B, self.H, self.N, self.d

    @property
    def pairs(self) -> int:
        """Visible pairs of a query and a key: N*N for each head, or if causal N*(N+1)/2, about half."""
        return self.heads * (self.N * (self.N + 1) // 2 if self.causal else self.N * self.N)

    @property
    def macs(self) -> int:
        """Multiply-adds of both products, for the visible pairs. The softmax is not counted."""
        return 2 * self.pairs * self.d

    @property
    def flops(self) -> int:
        """Two per multiply-add: 4*B*H*N*N*d, about half of that if causal."""
        return 2 * self.macs

    @property
    def elements(self) -> dict[str, int]:
        return dict.fromkeys("QKVO", self.heads * self.N * self.d)

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: Q, K and V read once, O written once."""
        return ELEMENT_BYTES[self.dtype] * sum(self.elements.values())

    def __str__(self) -> str:
        text = f"B{self.B} H{self.H} N{self.N} d{self.d}"
        text += " causal" if self.causal else ""
        text += f" scale {self.scale:g}" if self.scale else ""
        return text + (f" {self.dtype}" if self.dtype != "fp32" else "")


def parse_attention(text: str) -> AttentionShape:
    """Parse "B=1,H=12,N=1024,d=64,causal=1,dtype=fp16" into an AttentionShape.

    Raises ShapeError if the text is malformed.
    """
    return AttentionShape(**parse(text, FIELDS, "BHNd", text_fields=("dtype",), float_fields=("scale",)))
