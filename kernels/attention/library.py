"""attention/library*: PyTorch's scaled_dot_product_attention, a rung for each backend.

PyTorch chooses a backend itself. Here one is named (torch.nn.attention.sdpa_kernel), so that it is known which one ran.
PyTorch reports what a backend supports when it is called (kernels.records.availability). FLASH_ATTENTION and
CUDNN_ATTENTION need 16-bit types. EFFICIENT_ATTENTION supports FP32 too. From compute capability 8.0 on it multiplies
FP32 on the tensor cores: each product is made of three TF32 products, also if allow_tf32 is off (PyTorch's source,
mem_eff_attention/gemm_kernel_utils.h: OpMultiplyAddFastF32). This is nearly as exact as FP32, and not bound by its rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kernels.attention import common, variants
from kernels.attention.shape import AttentionShape
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.libraries.torch import Tensor
from kernels.model.program import LibraryCall, Program, Tiles
from kernels.model.rules import broken
from kernels.model.rung import TENSOR_CORES, Cost, Rung

IDEAS = {  # backend: (suffix of the rung's name, its title, description from PyTorch's documentation)
    "EFFICIENT_ATTENTION": (
        "library",
        mark("PyTorch (memory-efficient)"),
        mark(
            "Memory-efficient attention: nothing N x N is stored. An FP32 product is three TF32 products on tensor cores."
        ),
    ),
    "FLASH_ATTENTION": (
        "library-flash",
        mark("PyTorch (flash)"),
        mark("FlashAttention-2 in PyTorch, for 16-bit types only."),
    ),
    "CUDNN_ATTENTION": (
        "library-cudnn",
        mark("PyTorch (cuDNN)"),
        mark("cuDNN's fused attention, called by PyTorch, for 16-bit types only."),
    ),
}


REFUSALS = ("No available kernel", "no kernel found to launch")


class Attention(torch_library.Call):
    """One backend on Q, K, V and O [B, H, N, d]. It cannot write to a given array."""

    def __init__(self, backend: str, Q, K, V, out, N, d, scale, causal):
        super().__init__(Q, K, V, out)
        self._backend, self._factors = backend, {"is_causal": bool(causal), "scale": float(scale)}

    def run(self) -> Tensor:
        attention = self.torch.nn.attention
        with attention.sdpa_kernel(getattr(attention.SDPBackend, self._backend)):
            return self.torch.nn.functional.scaled_dot_product_attention(*self.tensors[:3], **self._factors)

    def refusal(self, error: Exception, messages: Sequence[str]) -> str | None:
        if not any(reason in str(error) for reason in REFUSALS):
            return None
        return f"{self._backend} for this shape ({torch_library.reasons(messages) or error})"

    def copy(self) -> None:
        self.tensors[-1].copy_(self.results)


class Variants(Attention):
    """One backend with another number of keys, heads that share keys, a window or a mask. PyTorch has no window: it gets a
    mask [N, M] with the window, made before the first run. With fewer queries than keys its `is_causal` is aligned to the
    first key; a mask object (torch.nn.attention.bias) says that it is aligned to the last."""

    def __init__(self, backend: str, *args):
        *arrays, N, M, d, sharing, scale, causal, window, _ = args
        Q, K, V, *mask, out = arrays
        super().__init__(backend, Q, K, V, out, N, d, scale, causal and N == M and not (window or mask))
        self._mask = [self.tensor(x) for x in mask]
        self._pairs = int(N), int(M), bool(causal), int(window)
        if sharing > 1:
            self._factors["enable_gqa"] = True

    def prepare(self) -> None:
        N, M, causal, window = self._pairs
        if self._factors["is_causal"] or not (self._mask or window or (causal and N > 1)):
            return  # one query, aligned to the last key, sees all keys
        if not (self._mask or window):
            from torch.nn.attention.bias import causal_lower_right  # pyright: ignore[reportMissingImports]  # optional

            self._factors["attn_mask"] = causal_lower_right(N, M)
            return
        visible = self._visible()
        if self._mask and self._mask[0].dtype == self.torch.uint8:
            visible &= self._mask[0] != 0
        elif self._mask:
            visible = self._mask[0].masked_fill(~visible, float("-inf"))
        self._factors["attn_mask"] = visible
        self.kept_bytes = visible.numel() * visible.element_size()

    def _visible(self) -> Tensor:
        """Returns bool [N, M]: the pairs that causal and window leave visible."""
        N, M, causal, window = self._pairs
        device = self.tensors[0].device
        position = self.torch.arange(M - N, M, device=device)[:, None]
        key = self.torch.arange(M, device=device)
        found = self.torch.ones(N, M, dtype=self.torch.bool, device=device)
        if window:
            found &= (key > position - window) & (key < position + window)
        return found & (key <= position) if causal else found


def build(backend: str, s: AttentionShape, tiles: Tiles) -> Program:
    if s.variants:
        args = (*variants.inputs(s), "O", *variants.extents(s, s.sharing))
        call = LibraryCall(f"torch_{backend.lower()}", args, None, partial(Variants, backend))
        return Program(variants.buffers(s), (call,))
    call = LibraryCall(f"torch_{backend.lower()}", common.arguments(s), None, partial(Attention, backend))
    return Program(common.buffers(s), (call,))


def rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    """Yields a rule for a cap, which the call has no parameter for. PyTorch says itself what else it does not support."""
    if s.softcap:
        yield broken("softcap == 0 (scaled_dot_product_attention has none)", f"{s.softcap:g}")


def cost(s: AttentionShape, program: Program) -> Cost:
    """Returns the FLOPs of the visible pairs and the bytes of the tensors. PyTorch's workspace is not known ahead."""
    return Cost(s.flops, s.bytes, None)


def _rung(backend: str, suffix: str, title: str, idea: str) -> Rung:
    return Rung(
        name=f"attention/{suffix}",
        title=title,
        idea=idea,
        build=partial(build, backend),
        cost=cost,
        rules=rules,
        tolerance=common.TOLERANCE,
        units=TENSOR_CORES,  # FP32 as three TF32 products
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )


RUNGS = tuple(_rung(backend, *labels) for backend, labels in IDEAS.items())
