// Global average pooling, one warp for PLANES planes.
//
// Idea: lane l adds pixels l, l + 32, ... of each plane, four at once if
// VECTOR is 4. So a warp reads contiguous memory. The loads of PLANES
// planes run at the same time. Then the lanes exchange their sums, 16,
// 8, 4, 2 and 1 apart, without memory.
// What limits it: HBM.
//
// Launch: grid ceil(planes / (WARPS * PLANES)), block 32 * WARPS.

constexpr int UNROLL = VECTOR == 4 ? 4 : 2;  // loads of a plane in flight

// Returns the sum of VECTOR contiguous floats.
__device__ inline float sum_at(const float* x) {
  if (VECTOR == 1) return *x;
  float4 four = *(const float4*)x;
  return (four.x + four.y) + (four.z + four.w);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) global_warp(
    const float* __restrict__ x,  // [planes, area], planes = N * C
    float* __restrict__ y,        // [planes]
    int planes, int area) {       // area = H * W
  int lane = threadIdx.x % 32;
  int first = (blockIdx.x * WARPS + threadIdx.x / 32) * PLANES;  // plane
  if (first >= planes) return;
  x += (size_t)first * area;  // [PLANES, area]

  float sums[PLANES] = {};
#pragma unroll UNROLL
  for (int pixel = lane * VECTOR; pixel < area; pixel += 32 * VECTOR)
#pragma unroll
    for (int k = 0; k < PLANES; ++k)
      if (first + k < planes)
        sums[k] += sum_at(x + (size_t)k * area + pixel);

#pragma unroll
  for (int k = 0; k < PLANES; ++k) {
    for (int lane_mask = 16; lane_mask; lane_mask /= 2)
      sums[k] += __shfl_xor_sync(~0u, sums[k], lane_mask);
    if (lane == 0 && first + k < planes) y[first + k] = sums[k] / area;
  }
}
