// Loss and gradient of cross-entropy in one kernel, two reads of x.
//
// Idea: the weight g of a row in the loss is known before the step:
// 1 / M for a mean, 0 for a row that does not count. So the gradient
// can follow the loss in the same kernel. The log-sum-exp stays in a
// register. A block reads its row for m and l, then again for dx.
// What limits it: the second read of x. Rows that wait for it on all
// SMs together are larger than the L2 cache if the vocabulary is
// large.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK, LOADS are defines.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) fused_step(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    const float* __restrict__ g,     // [M]
    float* __restrict__ loss,        // [M]
    float* __restrict__ dx,          // [M, N]
    int N) {
  __shared__ Running of_warp[WARPS];
  int row = blockIdx.x, thread = threadIdx.x;
  x += (size_t)row * N, dx += (size_t)row * N;  // [N]
  int label = labels[row];
  float picked = x[label], row_g = g[row];

  int before = floats_before_16(x, N), fours = (N - before) / 4;
  const float4* x4 = (const float4*)(x + before);  // [fours]
  float4* dx4 = (float4*)(dx + before);            // [fours]
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
  int others = N - 4 * fours;  // before and after the fours
  for (int i = thread; i < others; i += BLOCK)
    part = merge(part, {x[i < before ? i : i + 4 * fours], 1.0f});
  part = over_block(part, of_warp);

  if (thread == 0) loss[row] = logf(part.l) - (picked - part.m);
  float factor = row_g / part.l;
  auto gradient = [&](float value, int col) {
    float weighted_p = __expf(value - part.m) * factor;
    return col == label ? weighted_p - row_g : weighted_p;
  };
  for (int first = thread; first < fours; first += LOADS * BLOCK) {
    float4 values[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      if (first + i * BLOCK < fours) values[i] = x4[first + i * BLOCK];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      int four = first + i * BLOCK, col = before + 4 * four;
      if (four < fours)
        dx4[four] = {gradient(values[i].x, col),
                     gradient(values[i].y, col + 1),
                     gradient(values[i].z, col + 2),
                     gradient(values[i].w, col + 3)};
    }
  }
  for (int i = thread; i < others; i += BLOCK) {
    int col = i < before ? i : i + 4 * fours;
    dx[col] = gradient(x[col], col);
  }
}
