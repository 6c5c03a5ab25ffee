"""PyTorch's softmax, and its scaled_dot_product_attention one backend at a time, on arrays of CuPy, on the current stream.

Attention chooses a backend for its caller; here one is named (torch.nn.attention.sdpa_kernel), so that what ran is
known: PyTorch refuses where that one does not support a shape. TF32 is off wherever PyTorch has a switch for it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernels.model.program import RefusedError, RuleError, UnsupportedError

BACKENDS = ("EFFICIENT_ATTENTION", "FLASH_ATTENTION", "CUDNN_ATTENTION")  # of torch.nn.attention.SDPBackend
LEAST = (2, 5)  # the first version that has them all
WITH_CUDA = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
REFUSALS = ("No available kernel", "no kernel found to launch")


def find() -> None:
    """RuleError, which says what brings it, where there is no PyTorch. It is not imported, which takes seconds."""
    if importlib.util.find_spec("torch") is None:
        raise RuleError("PyTorch was not found on this machine; pip install torch brings it")
    said = version()
    if said and tuple(int(n) for n in said.split(".")[:2]) < LEAST:
        raise RuleError(
            f"PyTorch {said} was found on this machine; {'.'.join(map(str, LEAST))} is needed: "
            "pip install --upgrade torch brings it"
        )
    if _without_cuda():
        raise RuleError(
            f"PyTorch {said} was found on this machine, built without CUDA; {WITH_CUDA} brings the other"
        )


def _without_cuda() -> bool:
    """Returns whether PyTorch's own version.py says that it was built without CUDA; False if there is no such file."""
    origin = getattr(importlib.util.find_spec("torch"), "origin", None)
    try:
        text = Path(origin).with_name("version.py").read_text(encoding="utf-8") if origin else ""
    except OSError:
        return False
    return re.search(r"^cuda\b[^=\n]*=\s*None", text, re.MULTILINE) is not None


def version() -> str | None:
    """PyTorch's version, "2.9.0+cu130"; None where there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def load() -> Any:
    """Returns the module. RefusedError if it does not load or sees no GPU, RuleError if it is missing."""
    find()
    try:
        import torch
        import torch.nn.attention
    except (ImportError, OSError) as e:
        raise RefusedError(f"PyTorch was found but does not load: {e}") from None
    if not torch.cuda.is_available():
        raise RefusedError(
            f"PyTorch {torch.__version__} was found, but it does not see the GPU; {WITH_CUDA} may help"
        )
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


class Attention:
    """One backend on Q, K, V and O [B, H, N, d] of CuPy, which PyTorch reads where they lie. What it returns lies in
    memory of its own; deliver() brings that to O, outside of what is timed, for PyTorch takes no place to write to.

    `own_bytes`: what it took beside the result, as its allocator tells of the first call."""

    def __init__(self, backend: str, Q, K, V, out, N, d, scale, causal):
        self.torch, self.backend = load(), backend
        self._q, self._k, self._v, self._o = (shared(self.torch, array) for array in (Q, K, V, out))
        self._factors = {"is_causal": bool(causal), "scale": float(scale)}
        self._result = None
        self.own_bytes: int | None = None

    def __call__(self) -> None:
        with on_our_stream(self.torch):
            self._run() if self.own_bytes is not None else self._first()

    def _run(self) -> None:
        attention = self.torch.nn.attention
        self._result = None  # its memory is free for the next
        with self.torch.inference_mode(), attention.sdpa_kernel(getattr(attention.SDPBackend, self.backend)):
            self._result = self.torch.nn.functional.scaled_dot_product_attention(
                self._q, self._k, self._v, **self._factors
            )

    def _first(self) -> None:
        """As any run, its memory measured, and a refusal told in PyTorch's words."""
        cuda = self.torch.cuda
        cuda.reset_peak_memory_stats()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                self._run()
            except RuntimeError as e:
                if not any(words in str(e) for words in REFUSALS):
                    raise
                words = reasons([str(w.message) for w in said]) or str(e)
                raise UnsupportedError(
                    f"PyTorch {self.torch.__version__} does not support {self.backend} for this shape ({words})"
                ) from None
        self.own_bytes = cuda.max_memory_allocated() - cuda.memory_allocated()

    def deliver(self) -> None:
        with on_our_stream(self.torch), self.torch.inference_mode():
            self._o.copy_(self._result)


class Softmax:
    """torch.softmax along the rows of x [M, N] of CuPy into y [M, N]: it takes a place to write to, and no memory of
    its own."""

    def __init__(self, x, y):
        self.torch = load()
        self._x, self._y = shared(self.torch, x), shared(self.torch, y)

    def __call__(self) -> None:
        with on_our_stream(self.torch), self.torch.inference_mode():
            self.torch.softmax(self._x, dim=1, out=self._y)


def on_our_stream(torch):
    """A context in which PyTorch launches on CuPy's current stream."""
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    return torch.cuda.stream(torch.cuda.ExternalStream(stream))


def reasons(said: Sequence[str]) -> str:
    """What PyTorch's warnings give as reasons: without the place in its source that stands behind each, and without
    the headings and the backends that were switched off here."""
    plain = [" ".join(message.partition("(Triggered")[0].split()) for message in said]
    told = [s for s in plain if not s.endswith("not used because:") and "has been runtime disabled" not in s]
    return "; ".join(told or plain)


def shared(torch, array):
    """A tensor on the memory of a CuPy array. DLPack does not know CuPy's bfloat16: it goes as whole numbers."""
    if array.dtype.name == "bfloat16":
        return torch.from_dlpack(array.view("int16")).view(torch.bfloat16)
    return torch.from_dlpack(array)
