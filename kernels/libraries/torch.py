"""PyTorch on arrays of CuPy, on the current stream: what every topic's calls share. TF32 is off wherever it has a switch."""

from __future__ import annotations

import importlib
import importlib.util
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels.i18n import tr
from kernels.model.program import RefusedError, RuleError, UnsupportedError

MIN_VERSION = (2, 5)  # the first version with every backend of attention that is called
WITH_CUDA = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"


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
    import importlib.metadata  # a tenth of the time of `import kernels`

    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


Tensor = Any  # one of PyTorch's, or what holds some: PyTorch is optional, so a checker may not know them


@cache
def load() -> ModuleType:
    """Returns the module. RefusedError if it does not load or sees no GPU, RuleError if it is missing."""
    find()
    try:
        torch: ModuleType = importlib.import_module("torch")  # optional, so a checker may not find it
        importlib.import_module("torch.nn.attention")
    except (ImportError, OSError) as e:
        raise RefusedError(f"PyTorch was found but does not load: {e}") from None
    if not torch.cuda.is_available():
        raise RefusedError(f"PyTorch {torch.__version__} was found, but it does not see the GPU; {WITH_CUDA} may help")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


class Call(ABC):
    """A call of PyTorch on arrays of CuPy, which it reads and writes in place, on CuPy's current stream.

    Where PyTorch cannot write to a given array, its results are in memory of its own; copy_result() copies them outside of
    the timing. `workspace_bytes`: memory besides our arrays and these results: `kept_bytes`, which the call holds from
    the start, and what PyTorch's allocator reports at most during the first run."""

    kept_bytes = 0

    def __init__(self, *arrays: object):
        self.torch = load()
        self.tensors = [self.tensor(array) for array in arrays]
        self.results: Tensor = None
        self.workspace_bytes: int | None = None

    def tensor(self, array: Any) -> Tensor:
        """Returns a tensor on the memory of an array."""
        return as_tensor(self.torch, array)

    @abstractmethod
    def run(self) -> Tensor:
        """Run once on `tensors`. Returns what PyTorch allocated for its results; None if it wrote to our arrays."""

    def prepare(self) -> None:  # noqa: B027
        """Do once, before the first run, what is not part of the call: a forward pass, a conversion."""

    def refusal(self, error: Exception, messages: Sequence[str]) -> str | None:
        """Returns PyTorch's reason if an error of the first run, with its warnings, says that it does not support this
        call; None if the error is a fault."""
        return None

    def __call__(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            self._first_run() if self.workspace_bytes is None else self._run()

    def _run(self) -> None:
        self.results = None  # frees their memory for the next
        self.results = self.run()

    def _first_run(self) -> None:
        cuda = self.torch.cuda
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self.prepare()
                cuda.reset_peak_memory_stats()
                self._run()
            except (RuntimeError, AttributeError) as e:
                reason = self.refusal(e, [str(w.message) for w in caught])
                if reason is None:
                    raise
                raise UnsupportedError(f"PyTorch {self.torch.__version__} does not support {reason}") from None
        self.workspace_bytes = self.kept_bytes + cuda.max_memory_allocated() - cuda.memory_allocated()

    def copy_result(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            self.copy()

    def copy(self) -> None:  # noqa: B027
        """Copy the results to our arrays. Nothing to do where run() wrote to them."""


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
