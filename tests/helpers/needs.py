"""Marks for GPU tests that need more than the GPU."""

from __future__ import annotations

import pytest

from kernels.engines import cuda
from kernels.libraries import torch as torch_library
from kernels.model.program import RuleError


def _torch_available() -> bool:
    try:
        torch_library.load()
    except RuleError:
        return False
    return True


needs_torch = pytest.mark.skipif(
    not cuda.status().ready or not _torch_available(), reason="PyTorch is not installed here, or sees no GPU"
)
