"""The occupancy computed without a GPU equals the driver's."""

from __future__ import annotations

import pytest

from kernels.engines import cuda
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.occupancy import H200, occupancy
from kernels.precompile import kernels

pytestmark = pytest.mark.gpu


TOPICS = sorted(archive.parent.name for archive in precompiled.FOLDER.glob("*/ptx.zip"))
THREADS = 32, 64, 128, 256, 512, 1024


@pytest.mark.parametrize("topic", TOPICS)
def test_blocks_per_sm_equal_the_drivers(topic):
    import cupy

    if cuda.device_name() != H200.name:
        return
    wrong = []
    for source, entry, defines in kernels():
        if source.partition("/")[0] != topic:
            continue
        kernel = cuda.compile_kernel(source, entry, defines)
        used = kernel.num_regs, kernel.shared_size_bytes
        for threads in THREADS:
            of_driver = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, 0)
            blocks = occupancy(*used, threads).blocks
            if blocks != of_driver:
                wrong.append(f"{source} {entry} {defines}, {threads} threads, {used}: {blocks}, driver {of_driver}")
    assert wrong == []
