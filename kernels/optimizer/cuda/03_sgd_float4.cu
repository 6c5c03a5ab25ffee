// A step of SGD with momentum: all tensors in one launch, float4.
//
// Idea: as in 02, and a thread loads PER float4 of each array before it
// updates the first. Tensors begin at multiples of 256 bytes, so a
// float4 never belongs to two of them.
// What limits it: HBM alone.
//
// Launch: grid chunks, block BLOCK. BLOCK, PER are defines.

#include "../../cuda/float4.cuh"
#include "sgd.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) sgd_float4(
    float* __restrict__ w,           // [extent], all weights
    const float* __restrict__ g,     // [extent], their gradients
    float* __restrict__ v,           // [extent], running sums
    const int2* __restrict__ table,  // [chunks]: first, elements
    Sgd by) {
  int2 chunk = table[blockIdx.x];
  w += chunk.x, g += chunk.x, v += chunk.x;
  int turn = 4 * BLOCK * PER;  // elements of a block per round
  for (int i = 4 * threadIdx.x; i < chunk.y; i += turn) {
    float weight[PER][4], gradient[PER][4], sum[PER][4];
    for (int k = 0; k < PER; ++k) {
      load_four(weight[k], w, i + 4 * BLOCK * k, chunk.y);
      load_four(gradient[k], g, i + 4 * BLOCK * k, chunk.y);
      load_four(sum[k], v, i + 4 * BLOCK * k, chunk.y);
    }
    for (int k = 0; k < PER; ++k) {
      for (int j = 0; j < 4; ++j)
        update(weight[k][j], gradient[k][j], sum[k][j], by);
      store_four(w, i + 4 * BLOCK * k, chunk.y, weight[k]);
      store_four(v, i + 4 * BLOCK * k, chunk.y, sum[k]);
    }
  }
}
