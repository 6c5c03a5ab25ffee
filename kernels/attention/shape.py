"""The shape of attention: O = softmax(scale * Q K^T) V for each head of each image or sentence of a batch.

Names follow FlashAttention (arXiv 2205.14135): N queries and keys, head size d. `AttentionShape` adds the variants that
models use: another number of keys, heads that share keys, a window, capped scores and a mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.row import Json
from kernels.model.shape import Shape, ShapeError, element_type, factor, flag, integer, one_of, parse

DTYPES = ("fp32", "fp16", "bf16")  # of Q, K, V and O
FIELDS = "B H N d causal scale dtype".split()
MASKS = ("none", "bool", "bias")
# The fields of the variants, with their values in plain self-attention.
VARIANTS = {"M": 0, "kv_heads": 0, "window": 0, "softcap": 0.0, "mask": "none"}
MAX_WINDOW = 2**30  # so that a position plus a window is an int


@dataclass(frozen=True)
class SelfAttentionShape(Shape):
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
        self._check(("dtype",), element_type, DTYPES)

    @property
    def heads(self) -> int:
        """Number of heads in the whole batch. Each is computed independently."""
        return self.B * self.H

    @property
    def factor(self) -> float:
        """Factor of the scores."""
        return self.scale or 1 / math.sqrt(self.d)

    @property
    def variants(self) -> Json:
        """Returns the fields that differ from plain self-attention: none."""
        return {}

    @property
    def keys(self) -> int:
        """Number of keys of a head."""
        return self.N

    @property
    def sharing(self) -> int:
        """Number of heads of queries that share keys and values."""
        return 1

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


@dataclass(frozen=True)
class AttentionShape(SelfAttentionShape):
    """Attention of N queries over `keys` keys: Q and O [B, H, N, d], K and V [B, groups, keys, d], all of one type.

    M is the number of keys; 0: as many as queries (self-attention). Query i has the position i + M - N: the last query has
    that of the last key. `causal`: a query sees the keys up to its position. `window` W: of these only the last W; if not
    causal, the keys less than W positions away. 0: no window.
    `kv_heads` heads have keys and values, each for H / kv_heads heads of queries (grouped-query attention, arXiv
    2305.13245). 0: H.
    `softcap` c replaces each scaled score s by c * tanh(s / c) (Gemma 2, arXiv 2408.00118). 0: no cap.
    `mask` [N, M], the same for all heads: "bool" has 1 for each visible pair and 0 for others, "bias" is added to the
    scores after the cap, "none".
    A query that sees no key has the result 0.

    A mask is given as PyTorch's attn_mask: it broadcasts to [N, M], as [1, 1, N, M] does. For "bool" also an additive mask
    of 0 and -inf is read. Rungs with wgmma, and flash-decode-ring, need d in multiples of 8.

    Raises ShapeError, which names the broken rule.
    """

    M: int = 0
    kv_heads: int = 0
    window: int = 0
    softcap: float = 0.0
    mask: str = "none"

    def __post_init__(self):
        super().__post_init__()
        self._check(("M", "kv_heads"), integer, 0)
        self._check(("window",), integer, 0, MAX_WINDOW)
        self._check(("softcap",), factor)
        self._check(("mask",), one_of, MASKS)
        if self.softcap < 0:
            raise ShapeError(tr("softcap must not be below 0, got {got}", got=f"{self.softcap:g}"))
        if self.H % self.groups:
            raise ShapeError(tr("H % kv_heads == 0, got {H} % {groups}", H=self.H, groups=self.groups))
        # One shape has one description.
        for name, same in (("M", self.N), ("kv_heads", self.H)):
            if getattr(self, name) == same:
                object.__setattr__(self, name, 0)

    def params(self) -> Json:
        """Returns the fields by name; those of VARIANTS only if they differ from plain self-attention."""
        return {name: value for name, value in vars(self).items() if VARIANTS.get(name) != value}

    @property
    def variants(self) -> Json:
        """Returns the fields that differ from plain self-attention."""
        return {name: value for name, value in self.params().items() if name in VARIANTS}

    @property
    def keys(self) -> int:
        """Number of keys of a head."""
        return self.M or self.N

    @property
    def groups(self) -> int:
        """Number of heads of keys and values in a sequence."""
        return self.kv_heads or self.H

    @property
    def sharing(self) -> int:
        """Number of heads of queries that share keys and values."""
        return self.H // self.groups

    @property
    def kv_shape(self) -> tuple[int, int, int, int]:
        return self.B, self.groups, self.keys, self.d

    def begin_key(self, query: int) -> int:
        """Returns the first key that a query may see, 0 .. keys."""
        position = query + self.keys - self.N
        return min(max(position - self.window + 1, 0), self.keys) if self.window else 0

    def end_key(self, query: int) -> int:
        """Returns the key after the last that a query may see, 0 .. keys. A later query never has a smaller one."""
        if not (self.causal or self.window):
            return self.keys
        position = query + self.keys - self.N
        return min(max(position + (1 if self.causal else self.window), 0), self.keys)

    @property
    def seen_keys(self) -> int:
        """Number of keys of a head that some query may see."""
        return self.end_key(self.N - 1) - self.begin_key(0)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that causal and window leave visible. A mask's zeros are not counted as hidden."""
        if not self.variants:
            return super().pairs
        if not (self.causal or self.window):
            return self.heads * self.N * self.keys
        first = self.keys - self.N + (1 if self.causal else self.window)  # end_key of query 0, not clipped
        ends = _clipped_sum(first, self.N, self.keys)
        begins = self.keys - self.N - self.window + 1
        return self.heads * (ends - (_clipped_sum(begins, self.N, self.keys) if self.window else 0))

    @property
    def elements(self) -> dict[str, int]:
        queries, keys = self.heads * self.N * self.d, self.B * self.groups * self.keys * self.d
        return {"Q": queries, "K": keys, "V": keys, "O": queries}

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: Q, the mask and the seen keys and values read once, O written once."""
        keys = 2 * self.B * self.groups * self.seen_keys * self.d
        mask = 0 if self.mask == "none" else self.N * self.keys * self.mask_bytes
        return ELEMENT_BYTES[self.dtype] * (2 * self.heads * self.N * self.d + keys) + mask

    @property
    def mask_bytes(self) -> int:
        """Bytes of an element of the mask."""
        return 1 if self.mask == "bool" else ELEMENT_BYTES[self.dtype]

    def __str__(self) -> str:
        names = {
            "M": "M{}",
            "kv_heads": "KV heads {}",
            "window": "window {}",
            "softcap": "softcap {:g}",
            "mask": "{} mask",
        }
        words = [names[name].format(value) for name, value in self.variants.items()]
        return " ".join((super().__str__(), *words))


def _clipped_sum(first: int, count: int, limit: int) -> int:
    """Returns the sum of min(max(n, 0), limit) for the `count` whole numbers n from `first` on."""
    last = first + count - 1
    low, high = max(first, 0), min(last, limit)
    inside = (low + high) * (high - low + 1) // 2 if high >= low else 0
    return inside + limit * max(0, last - max(limit, first - 1))


def parse_attention(text: str) -> AttentionShape:
    """Parse "B=1,H=12,N=1024,d=64,causal=1,dtype=fp16,kv_heads=4" into an AttentionShape.

    Raises ShapeError if the text is malformed.
    """
    fields = (*FIELDS, *VARIANTS)
    return AttentionShape(**parse(text, fields, "BHNd", ("dtype", "mask"), ("scale", "softcap")))
