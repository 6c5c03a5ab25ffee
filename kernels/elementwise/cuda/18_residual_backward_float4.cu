// The gradient of y = max(a + b, 0) with 16-byte loads, several at a
// time.
//
// Idea: a thread loads PER float4 of dy, y and db before it uses the
// first.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (4 * BLOCK * PER)), block BLOCK. BLOCK, PER
// are defines.

#include "../../cuda/float4.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
    residual_backward_float4(
        const float* __restrict__ dy,  // [count]
        const float* __restrict__ y,   // [count]
        float* __restrict__ da,        // [count], of the branch
        float* __restrict__ db,        // [count], of the shortcut: +=
        int count) {
  int first = 4 * (blockIdx.x * BLOCK * PER + threadIdx.x);
  float g[PER][4], kept[PER][4], sum[PER][4];
  for (int k = 0; k < PER; ++k) {
    load_four(g[k], dy, first + 4 * BLOCK * k, count);
    load_four(kept[k], y, first + 4 * BLOCK * k, count);
    load_four(sum[k], db, first + 4 * BLOCK * k, count);
  }
  for (int k = 0; k < PER; ++k) {
    for (int j = 0; j < 4; ++j) {
      g[k][j] = kept[k][j] > 0.0f ? g[k][j] : 0.0f;
      sum[k][j] += g[k][j];
    }
    store_four(da, first + 4 * BLOCK * k, count, g[k]);
    store_four(db, first + 4 * BLOCK * k, count, sum[k]);
  }
}
