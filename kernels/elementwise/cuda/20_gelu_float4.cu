// GELU with 16-byte loads, several of them at the same time.
//
// Idea: a thread loads PER float4 before it uses the first. So more
// bytes are on their way while the first erf or tanh is computed.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (4 * BLOCK * PER)), block BLOCK. BLOCK, PER
// and FORM (gelu.cuh) are defines.

#include "../../cuda/float4.cuh"
#include "gelu.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) gelu_float4(
    const float* __restrict__ x,  // [count]
    float* __restrict__ y,        // [count]
    int count) {
  int first = 4 * (blockIdx.x * BLOCK * PER + threadIdx.x);
  float v[PER][4];
  for (int k = 0; k < PER; ++k)
    load_four(v[k], x, first + 4 * BLOCK * k, count);
  for (int k = 0; k < PER; ++k) {
    for (int j = 0; j < 4; ++j) v[k][j] = v[k][j] * share_below(v[k][j]);
    store_four(y, first + 4 * BLOCK * k, count, v[k]);
  }
}
