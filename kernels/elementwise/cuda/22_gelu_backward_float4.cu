// The gradient of GELU with 16-byte loads, several at the same time.
//
// Idea: as in 20. A thread loads PER float4 of dy and of x before it
// uses the first.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (4 * BLOCK * PER)), block BLOCK. BLOCK, PER
// and FORM (gelu.cuh) are defines.

#include "../../cuda/float4.cuh"
#include "gelu.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) gelu_backward_float4(
    const float* __restrict__ dy,  // [count]
    const float* __restrict__ x,   // [count]
    float* __restrict__ dx,        // [count]
    int count) {
  int first = 4 * (blockIdx.x * BLOCK * PER + threadIdx.x);
  float v[PER][4], at[PER][4];
  for (int k = 0; k < PER; ++k) {
    load_four(v[k], dy, first + 4 * BLOCK * k, count);
    load_four(at[k], x, first + 4 * BLOCK * k, count);
  }
  for (int k = 0; k < PER; ++k) {
    for (int j = 0; j < 4; ++j) v[k][j] = v[k][j] * slope_of(at[k][j]);
    store_four(dx, first + 4 * BLOCK * k, count, v[k]);
  }
}
