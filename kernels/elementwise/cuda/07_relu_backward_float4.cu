// The gradient of ReLU with 16-byte loads, several at the same time.
//
// Idea: as in 04. A thread loads PER float4 of dy, and what was kept of
// the same elements, before it uses the first.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (4 * BLOCK * PER)), block BLOCK, whole
// warps. BLOCK, PER, KEEP are defines.

#include "../../cuda/float4.cuh"
#include "mask.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) relu_backward_float4(
    const float* __restrict__ dy,   // [count]
    const Kept* __restrict__ kept,  // y [count], or the mask (mask.cuh)
    float* __restrict__ dx,         // [count]
    int count) {
  int first = 4 * (blockIdx.x * BLOCK * PER + threadIdx.x);
  float v[PER][4];
  unsigned positive[PER];
  for (int k = 0; k < PER; ++k) {
    load_four(v[k], dy, first + 4 * BLOCK * k, count);
    positive[k] = positive_four(kept, first + 4 * BLOCK * k, count);
  }
  for (int k = 0; k < PER; ++k) {
    for (int j = 0; j < 4; ++j)
      v[k][j] = positive[k] >> j & 1 ? v[k][j] : 0.0f;
    store_four(dx, first + 4 * BLOCK * k, count, v[k]);
  }
}
