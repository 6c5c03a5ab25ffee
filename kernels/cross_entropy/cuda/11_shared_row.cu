// Loss and gradient of cross-entropy in one kernel, one read of x.
//
// Idea: the row stays in shared memory between its two uses. A thread
// loads four floats, adds them to its maximum and sum, and puts them
// into shared memory. When the whole row is known, it takes its own
// numbers from there and writes their gradient. GPT-2's row of 50,257
// floats is 201 KB; a block of an H100 may have 227 KB.
// What limits it: HBM alone: x is read once, dx is written once. A
// long row leaves room for one block on an SM. Longer rows do not fit.
//
// Launch: grid M, block BLOCK, whole warps. Shared memory:
// 4 * N bytes. BLOCK and LOADS are defines.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) shared_row(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    const float* __restrict__ g,     // [M]
    float* __restrict__ loss,        // [M]
    float* __restrict__ dx,          // [M, N]
    int N) {
  extern __shared__ __align__(16) float kept[];  // [N]
  __shared__ Running of_warp[WARPS];
  int row = blockIdx.x, thread = threadIdx.x;
  x += (size_t)row * N, dx += (size_t)row * N;  // [N]
  int label = labels[row];
  float picked = x[label], row_g = g[row];

  int before = floats_before_16(x, N), fours = (N - before) / 4;
  const float4* x4 = (const float4*)(x + before);  // [fours]
  float4* dx4 = (float4*)(dx + before);            // [fours]
  float4* kept4 = (float4*)kept;                   // [fours]
  float* kept_others = kept + 4 * fours;           // [others]
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
    for (int i = 0; i < LOADS; ++i) {
      l += sum_of_exp(values[i], m);
      int four = first + i * BLOCK;
      if (four < fours) kept4[four] = values[i];
    }
  }
  Running part = {m, l};
  int others = N - 4 * fours;  // before and after the fours
  for (int i = thread; i < others; i += BLOCK) {
    kept_others[i] = x[i < before ? i : i + 4 * fours];
    part = merge(part, {kept_others[i], 1.0f});
  }
  part = over_block(part, of_warp);

  if (thread == 0) loss[row] = logf(part.l) - (picked - part.m);
  float factor = row_g / part.l;
  auto gradient = [&](float value, int col) {
    float weighted_p = __expf(value - part.m) * factor;
    return col == label ? weighted_p - row_g : weighted_p;
  };
#pragma unroll (LOADS)
  for (int four = thread; four < fours; four += BLOCK) {
    float4 value = kept4[four];
    int col = before + 4 * four;
    dx4[four] = {gradient(value.x, col), gradient(value.y, col + 1),
                 gradient(value.z, col + 2),
                 gradient(value.w, col + 3)};
  }
  for (int i = thread; i < others; i += BLOCK) {
    int col = i < before ? i : i + 4 * fours;
    dx[col] = gradient(kept_others[i], col);
  }
}
