// The gradient of cross-entropy, one block per row, 16 bytes a load.
//
// Idea: a block knows its row, so nothing is divided. label, lse and
// g are loaded once. A thread loads LOADS times four floats before it
// computes, and stores four floats at once. Rows of any length have
// 16-byte accesses: the few floats before and after the multiples of
// 16 bytes are handled one by one.
// What limits it: HBM alone: x is read once, dx is written once.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK, LOADS are defines.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) gradient_rows(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    const float* __restrict__ lse,   // [M]
    const float* __restrict__ g,     // [M]
    float* __restrict__ dx,          // [M, N]
    int N) {
  int row = blockIdx.x, thread = threadIdx.x;
  x += (size_t)row * N, dx += (size_t)row * N;  // [N]
  int label = labels[row];
  float row_lse = lse[row], row_g = g[row];
  auto gradient = [&](float value, int col) {
    float p = __expf(value - row_lse);
    return (p - (col == label ? 1.0f : 0.0f)) * row_g;
  };

  int before = floats_before_16(x, N), fours = (N - before) / 4;
  const float4* x4 = (const float4*)(x + before);  // [fours]
  float4* dx4 = (float4*)(dx + before);            // [fours]
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
  int others = N - 4 * fours;  // before and after the fours
  for (int i = thread; i < others; i += BLOCK) {
    int col = i < before ? i : i + 4 * fours;
    dx[col] = gradient(x[col], col);
  }
}
