// The gradient of cross-entropy, one block for a short piece of a row.
//
// Idea: a block of 09 handles a whole row, so the GPU reads and writes
// in a thousand distant rows at once. Here a block handles one piece of
// a row, LOADS times four floats for each thread, and ends. Blocks
// begin in the order of their numbers. At any time the GPU works on
// one contiguous region of x and dx, as a copy does. A block finds its
// row with one division.
// What limits it: HBM alone: x is read once, dx is written once.
//
// Launch: grid M * pieces, block BLOCK, whole warps. A row has
// ceil((N + 3) / (4 * LOADS * BLOCK)) pieces: up to 3 floats before the
// row begin its first group of four. BLOCK and LOADS are defines.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) gradient_pieces(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    const float* __restrict__ lse,   // [M]
    const float* __restrict__ g,     // [M]
    float* __restrict__ dx,          // [M, N]
    int N, int pieces) {
  int row = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  x += (size_t)row * N, dx += (size_t)row * N;  // [N]
  // The column of this thread's first float. The groups of four begin
  // at multiples of 16 bytes, the first up to 3 floats before the row.
  int start = -(int)((size_t)x % 16 / 4);
  int first = start + 4 * (piece * LOADS * BLOCK + threadIdx.x);

  float4 values[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    int col = first + 4 * i * BLOCK;
    if (col >= 0 && col + 4 <= N) values[i] = *(const float4*)(x + col);
  }
  int label = labels[row];
  float row_lse = lse[row], row_g = g[row];
  auto gradient = [&](float value, int col) {
    float p = __expf(value - row_lse);
    return (p - (col == label ? 1.0f : 0.0f)) * row_g;
  };
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    int col = first + 4 * i * BLOCK;
    if (col >= 0 && col + 4 <= N)
      *(float4*)(dx + col) = {
          gradient(values[i].x, col), gradient(values[i].y, col + 1),
          gradient(values[i].z, col + 2), gradient(values[i].w, col + 3)};
    else
      for (int j = max(col, 0); j < min(col + 4, N); ++j)
        dx[j] = gradient(x[j], j);
  }
}
