// Softmax that reads a row once: the row stays in registers.
//
// Idea: each of BLOCK threads keeps PER floats in registers. It loads
// all of them before it uses the first. So many loads run at the same
// time. Maximum, exponentials, sum and result are computed in these
// registers. x is read once, y is written once, and an element costs
// one exponential. The lanes of a warp combine their values by a
// butterfly, the warps of the block by shared memory.
// What limits it: HBM alone. And a row must fit into the registers of
// a block: N <= BLOCK * PER.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK, PER are defines.

#include "softmax.cuh"

constexpr int WARPS = BLOCK / 32;

__device__ inline float max_of(float a, float b) { return fmaxf(a, b); }
__device__ inline float sum_of(float a, float b) { return a + b; }

// Combines a value of each thread into one value for the whole block.
template <float (*COMBINE)(float, float)>
__device__ inline float over_block(float value,
                                   float (&warp_values)[WARPS]) {
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    value = COMBINE(value, __shfl_xor_sync(~0u, value, lane_mask));
  if (threadIdx.x % 32 == 0) warp_values[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_values[0];
  for (int warp = 1; warp < WARPS; ++warp)
    value = COMBINE(value, warp_values[warp]);
  return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK) registers(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ float warp_m[WARPS], warp_l[WARPS];
  int thread = threadIdx.x;
  x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;  // [N]

  float values[PER];  // beyond the row: exp(-infinity - m) is 0
  for (int i = 0; i < PER; ++i) {
    int col = i * BLOCK + thread;
    values[i] = col < N ? x[col] : -INFINITE;
  }

  float m = values[0];
  for (int i = 1; i < PER; ++i) m = fmaxf(m, values[i]);
  m = over_block<max_of>(m, warp_m);

  float l = 0.0f;
  for (int i = 0; i < PER; ++i) l += values[i] = expf(values[i] - m);
  l = over_block<sum_of>(l, warp_l);

  float inverse_l = 1.0f / l;
  for (int i = 0; i < PER; ++i) {
    int col = i * BLOCK + thread;
    if (col < N) y[col] = values[i] * inverse_l;
  }
}
