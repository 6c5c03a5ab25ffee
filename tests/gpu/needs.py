"""What a test on a GPU may need besides the GPU."""

from __future__ import annotations

import pytest

from kernels import RuleError
from kernels.engines import cuda, cuda_torch


def _torch_there() -> bool:
    try:
        cuda_torch.load()
    except RuleError:
        return False
    return True


needs_torch = pytest.mark.skipif(
    not cuda.status().ready or not _torch_there(), reason="PyTorch is not installed here, or sees no GPU"
)
