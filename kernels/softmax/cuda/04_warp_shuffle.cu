// Softmax by a warp per row, without shared memory.
//
// Idea: the 32 lanes of a warp exchange values through registers. In
// five steps each lane merges its m and l with those of another lane.
// The numbers of the two lanes differ in one bit: 16, 8, 4, 2, then 1.
// After this butterfly all lanes have m and l of the row. There is no
// barrier and no shared memory, and no lane idles.
// What limits it: x is read twice. A long row has only 32 lanes, so few
// rows leave most of the device empty.
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
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  Running running = {-INFINITE, 0.0f};
  for (int col = lane; col < N; col += 32)
    running = merge(running, {x[col], 1.0f});
  for (int lane_mask = 16; lane_mask; lane_mask /= 2) {
    float other_m = __shfl_xor_sync(~0u, running.m, lane_mask);
    float other_l = __shfl_xor_sync(~0u, running.l, lane_mask);
    running = merge(running, {other_m, other_l});
  }

  for (int col = lane; col < N; col += 32)
    y[col] = expf(x[col] - running.m) / running.l;
}
