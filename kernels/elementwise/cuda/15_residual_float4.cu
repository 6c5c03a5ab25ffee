// The end of a residual block with 16-byte loads, several at a time.
//
// Idea: a thread loads PER float4 of a and of b before it adds the
// first.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (4 * BLOCK * PER)), block BLOCK. BLOCK, PER
// are defines.

#include "../../cuda/float4.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) residual_float4(
    const float* __restrict__ a,  // [count], of the branch
    const float* __restrict__ b,  // [count], of the shortcut
    float* __restrict__ y,        // [count]
    int count) {
  int first = 4 * (blockIdx.x * BLOCK * PER + threadIdx.x);
  float v[PER][4], w[PER][4];
  for (int k = 0; k < PER; ++k) {
    load_four(v[k], a, first + 4 * BLOCK * k, count);
    load_four(w[k], b, first + 4 * BLOCK * k, count);
  }
  for (int k = 0; k < PER; ++k) {
    for (int j = 0; j < 4; ++j) {
      float sum = v[k][j] + w[k][j];
      v[k][j] = sum < 0.0f ? 0.0f : sum;
    }
    store_four(y, first + 4 * BLOCK * k, count, v[k]);
  }
}
