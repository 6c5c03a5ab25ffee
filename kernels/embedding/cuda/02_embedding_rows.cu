// Embedding: a warp per row, 16 bytes a load.
//
// Idea: a warp reads its token once and copies the whole row. A lane
// loads LOADS times four floats before it stores the first. Nothing is
// divided. If d is no multiple of 4, rows are not aligned to 16 bytes,
// and floats are copied one by one.
// What limits it: HBM. The rows of frequent tokens stay in a cache.
//
// Launch: grid ceil(M / WARPS), block 32 * WARPS. WARPS and LOADS are
// defines.

extern "C" __global__ void __launch_bounds__(32 * WARPS) embedding_rows(
    const int* __restrict__ tokens,   // [M], each in 0 .. V - 1
    const float* __restrict__ table,  // [V, d]
    float* __restrict__ y,            // [M, d]
    int M, int d) {
  int lane = threadIdx.x % 32;
  int m = blockIdx.x * WARPS + threadIdx.x / 32;
  if (m >= M) return;
  table += (size_t)tokens[m] * d, y += (size_t)m * d;  // [d]

  if (d % 4) {
    for (int i = lane; i < d; i += 32) y[i] = table[i];
    return;
  }
  const float4* from = (const float4*)table;  // [d / 4]
  float4* to = (float4*)y;                    // [d / 4]
  for (int first = lane; first < d / 4; first += 32 * LOADS) {
    float4 values[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      if (first + 32 * i < d / 4) values[i] = from[first + 32 * i];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      if (first + 32 * i < d / 4) to[first + 32 * i] = values[i];
  }
}
