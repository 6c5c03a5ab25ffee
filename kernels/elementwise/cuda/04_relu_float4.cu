// ReLU with 16-byte loads, several of them at the same time.
//
// Idea: a thread loads PER float4 before it uses the first. So more
// bytes are on their way, and an element needs fewer instructions. The
// float4 of a warp are contiguous. KEEP chooses what is kept besides y
// (mask.cuh). For bits, 8 neighbouring lanes combine 4 bits each.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (4 * BLOCK * PER)), block BLOCK, whole
// warps. BLOCK, PER, KEEP are defines.

#include "../../cuda/float4.cuh"
#include "mask.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) relu_float4(
    const float* __restrict__ x,  // [count]
    float* __restrict__ y,        // [count]
#if KEEP
    Kept* __restrict__ mask,  // [count] bytes or [ceil(count / 32)] words
#endif
    int count) {
  int first = 4 * (blockIdx.x * BLOCK * PER + threadIdx.x);
  float v[PER][4];
  for (int k = 0; k < PER; ++k)
    load_four(v[k], x, first + 4 * BLOCK * k, count);
  for (int k = 0; k < PER; ++k) {
    int i = first + 4 * BLOCK * k;
    unsigned positive = 0;
    for (int j = 0; j < 4; ++j) {
      positive |= (v[k][j] > 0.0f) << j;
      v[k][j] = v[k][j] < 0.0f ? 0.0f : v[k][j];
    }
    store_four(y, i, count, v[k]);
#if KEEP
    keep(mask, i, count, positive);
#endif
  }
}
