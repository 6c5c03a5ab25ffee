// Softmax with many blocks per row, the first launch.
//
// Idea: a row of any length is cut into parts of equal length, one for
// each block. A block reads its part once and stores its maximum m and
// its sum l. The blocks of a grid have no common barrier, so a second
// launch uses these numbers. A thread begins LOADS loads of 16 bytes
// before it uses the first.
// What limits it: HBM, and the second launch, which reads x again.
//
// Launch: grid M * splits, block BLOCK, whole warps. BLOCK and LOADS
// are defines.

#include "long_rows.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) split_parts(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ part_m,   // [M, splits]
    float* __restrict__ part_l,   // [M, splits]
    int N, int splits) {
  __shared__ Running of_warp[WARPS];
  int row = blockIdx.x / splits, split = blockIdx.x % splits;
  int thread = threadIdx.x;
  x += (size_t)row * N;  // [N]
  Part part = part_of(x, N, split, splits);

  Running own = {-INFINITE, 0.0f};
  for (int first = part.start + 4 * thread; first < part.end;
       first += 4 * BLOCK * LOADS) {
    float4 values[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      values[i] = load_four(x, first + i * 4 * BLOCK, part.end);
    float old_m = own.m;
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      own.m = fmaxf(own.m, max_of(values[i]));
    own.l *= __expf(old_m - finite(own.m));
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      own.l += sum_of(exp_of(values[i], finite(own.m)));
  }

  Running all = over_warp(own);
  if (thread % 32 == 0) of_warp[thread / 32] = all;
  __syncthreads();
  if (thread >= 32) return;
  all = thread < WARPS ? of_warp[thread] : Running{-INFINITE, 0.0f};
  all = over_warp(all);
  if (thread == 0)
    part_m[blockIdx.x] = all.m, part_l[blockIdx.x] = all.l;
}
