// Layer norm that reads a row once: the row stays in registers.
//
// Idea: each of BLOCK threads keeps PER floats in registers, four of
// them from one load. It loads all of them before it uses the first.
// Mean, variance and result are computed from these registers. x is
// read once, y is written once. The lanes of a warp add their sums by
// exchanges, the warps of the block by shared memory.
// What limits it: HBM alone. And a row must fit into the registers of
// a block: N <= BLOCK * PER.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK, PER and WIDTH are
// defines.

#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = PER / WIDTH;

extern "C" __global__ void __launch_bounds__(BLOCK) ln_registers(
    const float* __restrict__ x,      // [M, N]
    const float* __restrict__ gamma,  // [N]
    const float* __restrict__ beta,   // [N]
    float* __restrict__ y,            // [M, N]
    float* __restrict__ mean,         // [M], kept for the backward pass
    float* __restrict__ invstd,       // [M], kept for the backward pass
    int N, float eps) {
  __shared__ float warp_sums[BLOCK / 32], warp_squares[BLOCK / 32];
  int thread = threadIdx.x, row = blockIdx.x;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  float values[LOADS][WIDTH], sum = 0.0f, squares = 0.0f;
  for (int i = 0; i < LOADS; ++i) {
    int col = (i * BLOCK + thread) * WIDTH;
    if (col < N) load(values[i], x + col);
    else clear(values[i]);
  }
  for (int i = 0; i < LOADS; ++i)
    for (float value : values[i]) sum += value;
  float m = sum_of_block(sum, warp_sums) / N;

  for (int i = 0; i < LOADS; ++i)
    if ((i * BLOCK + thread) * WIDTH < N)
      for (float value : values[i]) squares += (value - m) * (value - m);
  float s = inverse_std(sum_of_block(squares, warp_squares) / N, eps);
  if (thread == 0) mean[row] = m, invstd[row] = s;

  for (int i = 0; i < LOADS; ++i) {
    int col = (i * BLOCK + thread) * WIDTH;
    if (col >= N) break;
    float g[WIDTH], b[WIDTH];
    load(g, gamma + col), load(b, beta + col);
    for (int w = 0; w < WIDTH; ++w)
      values[i][w] = (values[i][w] - m) * s * g[w] + b[w];
    store(y + col, values[i]);
  }
}
