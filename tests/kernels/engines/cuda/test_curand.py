"""cuRAND's device functions: the numbers of the emulator are those of this GPU. Needs cuRAND's headers."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines import cuda_headers
from kernels.engines.emulator.compiler.compile import compile_ptx
from tests.helpers.emulated import emulate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not any((folder / "curand_kernel.h").is_file() for folder in cuda_headers.folders()),
        reason="cuRAND's headers are not installed here",
    ),
]
SOURCE = """#include <curand_kernel.h>
extern "C" __global__ void k(float* uniform, unsigned* whole, float* mrg, double* wide, unsigned* poisson, float* normal, float* log_normal) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  curandStatePhilox4_32_10_t philox; curandStateXORWOW_t xorwow; curandStateMRG32k3a_t mrg32k3a;
  curand_init(1234ull, i, 0, &philox);
  curand_init(1234ull, i, 0, &xorwow);
  curand_init(1234ull, i, 0, &mrg32k3a);
  uniform[i] = curand_uniform(&philox);
  whole[i] = curand(&xorwow);
  mrg[i] = curand_uniform(&mrg32k3a);
  wide[i] = curand_uniform_double(&philox);
  poisson[i] = curand_poisson(&philox, 4.0);
  normal[i] = curand_normal(&xorwow);
  log_normal[i] = curand_log_normal(&xorwow, 0, 1);
}"""
TYPES = {"uniform": "f4", "whole": "u4", "mrg": "f4", "wide": "f8", "poisson": "u4", "normal": "f4", "log_normal": "f4"}


def test_random_numbers_are_those_of_the_gpu():
    import cupy

    outputs = {name: ((128,), np.dtype(type_)) for name, type_ in TYPES.items()}
    emulated = emulate(SOURCE, {}, outputs, grid=2, block=64)
    module = cupy.cuda.function.Module()
    module.load(compile_ptx(SOURCE, "kernel.cu").encode())
    arrays = {name: cupy.zeros(128, type_) for name, type_ in TYPES.items()}
    module.get_function("k")((2,), (64,), tuple(arrays.values()))
    for name, array in arrays.items():
        tolerance = 2e-6 if "normal" in name else 0
        np.testing.assert_allclose(emulated[name], array.get(), rtol=tolerance, atol=tolerance, err_msg=name)
