// Layer norm by a warp per row, for short rows.
//
// Idea: a warp loads its row into registers, PER floats a lane. Mean
// and variance are computed from them. The 32 lanes exchange their sums
// through registers, in five steps each. There is no barrier and no
// shared memory, and x is read once.
// What limits it: HBM, for rows that fit: N <= 32 * PER.
//
// Launch: grid ceil(M / WARPS), block 32 * WARPS. WARPS and PER are
// defines.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) ln_warp(
    const float* __restrict__ x,      // [M, N]
    const float* __restrict__ gamma,  // [N]
    const float* __restrict__ beta,   // [N]
    float* __restrict__ y,            // [M, N]
    float* __restrict__ mean,         // [M], kept for the backward pass
    float* __restrict__ invstd,       // [M], kept for the backward pass
    int M, int N, float eps) {
  int lane = threadIdx.x % 32;
  int row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= M) return;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  float values[PER], sum = 0.0f, squares = 0.0f;
  for (int i = 0; i < PER; ++i) {
    int col = i * 32 + lane;
    values[i] = col < N ? x[col] : 0.0f;
  }
  for (int i = 0; i < PER; ++i) sum += values[i];
  float m = sum_of_warp(sum) / N;

  for (int i = 0; i < PER; ++i) {
    float distance = i * 32 + lane < N ? values[i] - m : 0.0f;
    squares += distance * distance;
  }
  float s = inverse_std(sum_of_warp(squares) / N, eps);
  if (lane == 0) mean[row] = m, invstd[row] = s;

  for (int i = 0; i < PER; ++i) {
    int col = i * 32 + lane;
    if (col < N) y[col] = (values[i] - m) * s * gamma[col] + beta[col];
  }
}
