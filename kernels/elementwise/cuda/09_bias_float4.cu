// Bias with 16-byte loads, several of them at the same time.
//
// Idea: a thread loads PER float4 of x before it uses the first. Each of
// the four elements has its own channel: a float4 may reach over the
// end of a plane.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (4 * BLOCK * PER)), block BLOCK. BLOCK, PER
// are defines.

#include "../../cuda/float4.cuh"
#include "channels.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bias_float4(
    const float* __restrict__ x,  // [outer, C, inner]
    const float* __restrict__ b,  // [C]
    float* __restrict__ y,        // [outer, C, inner]
    Channels shape, int count) {
  int first = 4 * (blockIdx.x * BLOCK * PER + threadIdx.x);
  float v[PER][4];
  for (int k = 0; k < PER; ++k)
    load_four(v[k], x, first + 4 * BLOCK * k, count);
  for (int k = 0; k < PER; ++k) {
    int i = first + 4 * BLOCK * k;
    for (int j = 0; j < 4; ++j)
      if (i + j < count) v[k][j] += b[channel_of(i + j, shape)];
    store_four(y, i, count, v[k]);
  }
}
