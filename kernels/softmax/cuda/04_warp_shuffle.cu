// Softmax by a warp per row, without shared memory.
//
// Idea: the 32 lanes of a warp hand values to each other. Every lane
// merges its m and l with those of the lane whose number differs in one
// bit, five times, the bit worth 16, 8, 4, 2 and 1: a butterfly, after
// which all lanes hold the row's m and l. No barrier, no shared memory,
// and no lane idles. What limits it: x is read twice; and a long row
// has but 32 lanes, so that few rows leave most of the device empty.
//
// Launch: grid ceil(M / WARPS), block 32 * WARPS. WARPS is a define.

#include "softmax.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) warp_shuffle(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int M, int N) {
  int lane = threadIdx.x % 32;
  int row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= M) return;
  x += (size_t)row * N, y += (size_t)row * N;

  Running r = {-INFINITE, 0.0f};
  for (int j = lane; j < N; j += 32) r = merge(r, {x[j], 1.0f});
  for (int bit = 16; bit; bit /= 2) {
    float m = __shfl_xor_sync(~0u, r.m, bit);
    float l = __shfl_xor_sync(~0u, r.l, bit);
    r = merge(r, {m, l});
  }

  for (int j = lane; j < N; j += 32) y[j] = expf(x[j] - r.m) / r.l;
}
