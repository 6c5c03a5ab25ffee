"""The occupancy computed without a GPU equals the driver's."""

from __future__ import annotations

import pytest

from kernels.engines import cuda
from kernels.engines.emulator.occupancy import H200, occupancy
from kernels.precompile import kernels

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("key", list(kernels()), ids=str)
@pytest.mark.parametrize("threads", [32, 64, 128, 256, 512, 1024])
def test_blocks_per_sm_equal_the_drivers(key, threads):
    import cupy

    if cuda.device_name() != H200.name:
        return
    source, entry, defines = key
    kernel = cuda.compile_kernel(source, entry, defines)
    driver_blocks = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, 0)
    result = occupancy(kernel.num_regs, kernel.shared_size_bytes, threads)
    assert result.blocks == driver_blocks, (kernel.num_regs, kernel.shared_size_bytes)
