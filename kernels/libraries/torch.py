"""PyTorch's softmax, and its scaled_dot_product_attention one backend at a time, on arrays of CuPy, on the current stream.

PyTorch chooses a backend of attention itself. Here one is named (torch.nn.attention.sdpa_kernel), so that it is known
which one ran. PyTorch raises an error if that one does not support a shape. TF32 is off wherever PyTorch has a switch.
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

from kernels.i18n import tr
from kernels.model.program import RefusedError, RuleError, UnsupportedError

BACKENDS = ("EFFICIENT_ATTENTION", "FLASH_ATTENTION", "CUDNN_ATTENTION")  # of torch.nn.attention.SDPBackend
MIN_VERSION = (2, 5)  # the first version that has them all
WITH_CUDA = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
REFUSALS = ("No available kernel", "no kernel found to launch")


def find() -> None:
    """Check that PyTorch is installed, without importing it, which takes seconds. RuleError says what installs it."""
    if importlib.util.find_spec("torch") is None:
        raise RuleError(tr("PyTorch was not found on this machine; pip install torch installs it"))
    installed = version()
    if installed and tuple(int(n) for n in installed.split(".")[:2]) < MIN_VERSION:
        raise RuleError(
            tr(
                "PyTorch {installed} was found on this machine; {needed} is needed: pip install --upgrade torch installs it",
                installed=installed,
                needed=".".join(map(str, MIN_VERSION)),
            )
        )
    if _without_cuda():
        raise RuleError(
            tr(
                "PyTorch {installed} was found on this machine, built without CUDA; {command} installs it with CUDA",
                installed=installed,
                command=WITH_CUDA,
            )
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
    """Returns PyTorch's version, "2.9.0+cu130"; None if it is missing."""
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
    """One backend on Q, K, V and O [B, H, N, d] of CuPy, which PyTorch reads in place. It cannot write to a given array:
    its result is in memory of its own, and deliver() copies it to O outside of the timing.

    `own_bytes`: bytes allocated besides the result, reported by PyTorch's allocator for the first call."""

    def __init__(self, backend: str, Q, K, V, out, N, d, scale, causal):
        self.torch, self.backend = load(), backend
        self._q, self._k, self._v, self._o = (as_tensor(self.torch, array) for array in (Q, K, V, out))
        self._factors = {"is_causal": bool(causal), "scale": float(scale)}
        self._result = None
        self.workspace_bytes: int | None = None

    def __call__(self) -> None:
        with on_current_stream(self.torch):
            self._run() if self.workspace_bytes is not None else self._first_run()

    def _run(self) -> None:
        attention = self.torch.nn.attention
        self._result = None  # frees its memory for the next
        with self.torch.inference_mode(), attention.sdpa_kernel(getattr(attention.SDPBackend, self.backend)):
            self._result = self.torch.nn.functional.scaled_dot_product_attention(
                self._q, self._k, self._v, **self._factors
            )

    def _first_run(self) -> None:
        """Run once and measure the memory. UnsupportedError with PyTorch's reasons if the shape is not supported."""
        cuda = self.torch.cuda
        cuda.reset_peak_memory_stats()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self._run()
            except RuntimeError as e:
                if not any(reason in str(e) for reason in REFUSALS):
                    raise
                reason = reasons([str(w.message) for w in caught]) or str(e)
                raise UnsupportedError(
                    f"PyTorch {self.torch.__version__} does not support {self.backend} for this shape ({reason})"
                ) from None
        self.workspace_bytes = cuda.max_memory_allocated() - cuda.memory_allocated()

    def copy_result(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            self._o.copy_(self._result)


class Softmax:
    """torch.softmax along the rows of x [M, N] of CuPy into y [M, N]. It writes to y directly and needs no memory of its
    own."""

    def __init__(self, x, y):
        self.torch = load()
        self._x, self._y = as_tensor(self.torch, x), as_tensor(self.torch, y)

    def __call__(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            self.torch.softmax(self._x, dim=1, out=self._y)


def on_current_stream(torch):
    """Returns a context in which PyTorch launches on CuPy's current stream."""
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    return torch.cuda.stream(torch.cuda.ExternalStream(stream))


def reasons(messages: Sequence[str]) -> str:
    """Returns the reasons in PyTorch's warnings, without the source locations after them, without headings, and without
    the backends that were disabled here."""
    texts = [" ".join(message.partition("(Triggered")[0].split()) for message in messages]
    given = [s for s in texts if not s.endswith("not used because:") and "has been runtime disabled" not in s]
    return "; ".join(given or texts)


def as_tensor(torch, array):
    """Returns a tensor that shares the memory of a CuPy array. DLPack does not know CuPy's bfloat16: it is passed as
    int16."""
    if array.dtype.name == "bfloat16":
        return torch.from_dlpack(array.view("int16")).view(torch.bfloat16)
    return torch.from_dlpack(array)
