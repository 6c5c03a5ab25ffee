// The sum of a block's numbers by shuffles.
//
// Idea: the lanes of a warp exchange values without memory.
// After steps of 16, 8, 4, 2 and 1, lane 0 has the sum of 32
// values. Only one float per warp goes through shared memory.
// The first warp adds these floats in the same way.
// What limits it: reading the input from HBM, once.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK, a multiple of 32.

__device__ inline float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2)
    value += __shfl_down_sync(0xffffffffu, value, step);
  return value;  // complete in lane 0
}

extern "C" __global__ void reduction(
    const float* __restrict__ input,  // [n]
    float* __restrict__ block_sums,   // [blocks]
    int n) {
  __shared__ float warp_sums[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = warp_sum(element < n ? input[element] : 0.0f);
  if (lane == 0) warp_sums[warp] = sum;
  __syncthreads();
  if (warp > 0) return;
  int warps = blockDim.x / 32;
  sum = warp_sum(lane < warps ? warp_sums[lane] : 0.0f);
  if (lane == 0) block_sums[blockIdx.x] = sum;
}
