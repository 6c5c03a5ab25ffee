// The sum of a block's numbers by shuffles.
//
// Idea: lanes of a warp hand values to each other without any
// memory: after steps of 16, 8, 4, 2 and 1 lane 0 holds the sum
// of 32. Only one float a warp goes through shared memory, where
// the first warp adds them up in the same way. What limits it:
// reading x from HBM, once.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK, a multiple of 32.

__device__ inline float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2)
    value += __shfl_down_sync(0xffffffffu, value, step);
  return value;  // whole in lane 0
}

extern "C" __global__ void reduction(
    const float* __restrict__ x,  // [n]
    float* __restrict__ sums,     // [blocks]
    int n) {
  __shared__ float of_warp[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = warp_sum(i < n ? x[i] : 0.0f);
  if (lane == 0) of_warp[warp] = sum;
  __syncthreads();
  if (warp > 0) return;
  int warps = blockDim.x / 32;
  sum = warp_sum(lane < warps ? of_warp[lane] : 0.0f);
  if (lane == 0) sums[blockIdx.x] = sum;
}
