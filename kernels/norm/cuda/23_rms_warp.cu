// RMS norm by a warp per row, for short rows.
//
// Idea: a warp loads its row into registers, PER floats a lane. The 32
// lanes exchange their sums of squares through registers, in five
// steps. There is no barrier and no shared memory, and x is read once.
// What limits it: HBM, for rows that fit: N <= 32 * PER.
//
// Launch: grid ceil(M / WARPS), block 32 * WARPS. WARPS and PER are
// defines.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) rms_warp(
    const float* __restrict__ x,      // [M, N]
    const float* __restrict__ gamma,  // [N]
    float* __restrict__ y,            // [M, N]
    float* __restrict__ invrms,       // [M], kept for the backward pass
    int M, int N, float eps) {
  int lane = threadIdx.x % 32;
  int row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= M) return;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  float values[PER], squares = 0.0f;
  for (int i = 0; i < PER; ++i) {
    int col = i * 32 + lane;
    values[i] = col < N ? x[col] : 0.0f;
  }
  for (int i = 0; i < PER; ++i) squares += values[i] * values[i];
  float s = inverse_std(sum_of_warp(squares) / N, eps);
  if (lane == 0) invrms[row] = s;

  for (int i = 0; i < PER; ++i) {
    int col = i * 32 + lane;
    if (col < N) y[col] = values[i] * s * gamma[col];
  }
}
