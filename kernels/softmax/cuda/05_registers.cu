// Softmax that reads a row once: it stays in registers.
//
// Idea: BLOCK threads keep PER floats each. All of them are asked for
// before the first is used, so that many are on their way at once;
// then maximum, exponentials, sum and result are computed where they
// lie: one read and one write of HBM, the least there can be, and one
// exponential an element. What a warp's lanes hold becomes one value
// by a butterfly, what the warps hold by shared memory. What limits
// it: HBM alone; and a row must fit, N <= BLOCK * PER.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK, PER are defines.

#include "softmax.cuh"

constexpr int WARPS = BLOCK / 32;

__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline float sum(float a, float b) { return a + b; }

// One value for the whole block of what its threads hold.
template <float (*WITH)(float, float)>
__device__ inline float together(float value, float (&parts)[WARPS]) {
  for (int bit = 16; bit; bit /= 2)
    value = WITH(value, __shfl_xor_sync(~0u, value, bit));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int w = 1; w < WARPS; ++w) value = WITH(value, parts[w]);
  return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK) registers(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ float maxima[WARPS], sums[WARPS];
  int t = threadIdx.x;
  x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;

  float v[PER];  // exp(-infinity - m) is 0: what is past the row's end
  for (int k = 0; k < PER; ++k)
    v[k] = k * BLOCK + t < N ? x[k * BLOCK + t] : -INFINITE;

  float m = v[0];
  for (int k = 1; k < PER; ++k) m = fmaxf(m, v[k]);
  m = together<larger>(m, maxima);

  float l = 0.0f;
  for (int k = 0; k < PER; ++k) l += v[k] = expf(v[k] - m);
  l = together<sum>(l, sums);

  float part = 1.0f / l;
  for (int k = 0; k < PER; ++k)
    if (k * BLOCK + t < N) y[k * BLOCK + t] = v[k] * part;
}
