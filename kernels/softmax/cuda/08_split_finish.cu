// Softmax with many blocks per row, the second launch.
//
// Idea: each warp merges m and l of all parts of its row. It needs no
// barrier: every warp does the same. The block reads its part of x
// again and writes y = exp(x - m) / l. The first loads begin before the
// parts are merged, so both take their time together. A part that is
// still in the L2 cache is not loaded again from HBM.
// What limits it: HBM, and the launch before. It must end first.
//
// Launch: grid M * splits, block BLOCK, whole warps. BLOCK and LOADS
// are defines.

#include "long_rows.cuh"

constexpr int TURN = 4 * BLOCK * LOADS;  // columns of a block

extern "C" __global__ void __launch_bounds__(BLOCK) split_finish(
    const float* __restrict__ x,       // [M, N]
    const float* __restrict__ part_m,  // [M, splits]
    const float* __restrict__ part_l,  // [M, splits]
    float* __restrict__ y,             // [M, N]
    int N, int splits) {
  int row = blockIdx.x / splits, split = blockIdx.x % splits;
  int thread = threadIdx.x;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]
  part_m += (size_t)row * splits, part_l += (size_t)row * splits;
  Part part = part_of(x, N, split, splits);

  int first = part.start + 4 * thread;
  float4 values[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i)
    values[i] = load_four(x, first + i * 4 * BLOCK, part.end);

  Running all = {-INFINITE, 0.0f};
  for (int i = thread % 32; i < splits; i += 32)
    all = merge(all, {part_m[i], part_l[i]});
  all = over_warp(all);

  float inverse_l = 1.0f / all.l;
  for (; first < part.end; first += TURN) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      store_four(y, first + i * 4 * BLOCK, part.end,
                 exp_of(values[i], all.m), inverse_l);
#pragma unroll
    for (int i = 0; i < LOADS; ++i)  // of the next turn
      values[i] = load_four(x, first + TURN + i * 4 * BLOCK, part.end);
  }
}
