// RMS norm that reads a row once: the row stays in registers.
//
// Idea: each of BLOCK threads keeps PER floats in registers, four of
// them from one load. It loads all of them before it uses the first. x
// is read once, y is written once. The lanes of a warp add their sums
// by exchanges, the warps of the block by shared memory.
// What limits it: HBM alone. And a row must fit into the registers of
// a block: N <= BLOCK * PER.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK, PER and WIDTH are
// defines.

#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = PER / WIDTH;

extern "C" __global__ void __launch_bounds__(BLOCK) rms_registers(
    const float* __restrict__ x,      // [M, N]
    const float* __restrict__ gamma,  // [N]
    float* __restrict__ y,            // [M, N]
    float* __restrict__ invrms,       // [M], kept for the backward pass
    int N, float eps) {
  __shared__ float warp_squares[BLOCK / 32];
  int thread = threadIdx.x, row = blockIdx.x;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  float values[LOADS][WIDTH], squares = 0.0f;
  for (int i = 0; i < LOADS; ++i) {
    int col = (i * BLOCK + thread) * WIDTH;
    if (col < N) load(values[i], x + col);
    else clear(values[i]);
  }
  for (int i = 0; i < LOADS; ++i)
    for (float value : values[i]) squares += value * value;
  float s = inverse_std(sum_of_block(squares, warp_squares) / N, eps);
  if (thread == 0) invrms[row] = s;

  for (int i = 0; i < LOADS; ++i) {
    int col = (i * BLOCK + thread) * WIDTH;
    if (col >= N) break;
    float g[WIDTH];
    load(g, gamma + col);
    for (int w = 0; w < WIDTH; ++w) values[i][w] *= s * g[w];
    store(y + col, values[i]);
  }
}
