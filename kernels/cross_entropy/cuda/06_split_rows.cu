// Cross-entropy with several blocks per row, the first launch.
//
// Idea: a row is cut into SPLITS parts of equal length. A block reads
// one part once, as in 05, and stores its maximum and its sum. Few
// rows of a large vocabulary now occupy many SMs. A second launch
// merges the parts.
// What limits it: HBM, and the second launch.
//
// Launch: grid M * SPLITS, block BLOCK, whole warps. BLOCK, LOADS and
// SPLITS are defines.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) split_rows(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ part_m,   // [M, SPLITS]
    float* __restrict__ part_l,   // [M, SPLITS]
    int N) {
  __shared__ Running of_warp[WARPS];
  int row = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
  int thread = threadIdx.x;
  int length = (N - 1) / SPLITS + 1, start = split * length;
  int count = min(length, max(0, N - start));  // of this part
  x += (size_t)row * N + min(start, N);  // [count]

  int before = floats_before_16(x, count), fours = (count - before) / 4;
  const float4* x4 = (const float4*)(x + before);  // [fours]
  float m = LOWEST, l = 0.0f;
  for (int first = thread; first < fours; first += LOADS * BLOCK) {
    float4 values[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      int four = first + i * BLOCK;
      values[i] = four < fours ? x4[four] : float4{
          -INFINITE, -INFINITE, -INFINITE, -INFINITE};  // adds 0 to l
    }
    float old_m = m;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) m = fmaxf(m, max_of(values[i]));
    l *= __expf(old_m - m);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) l += sum_of_exp(values[i], m);
  }
  Running part = {m, l};
  int others = count - 4 * fours;  // before and after the fours
  for (int i = thread; i < others; i += BLOCK)
    part = merge(part, {x[i < before ? i : i + 4 * fours], 1.0f});
  part = over_block(part, of_warp);

  if (thread == 0) {
    part_m[blockIdx.x] = part.m;
    part_l[blockIdx.x] = part.l;
  }
}
