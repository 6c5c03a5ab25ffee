// Global average pooling, a tile of planes in shared memory.
//
// Idea: small planes are no multiple of a warp's loads: 49 floats take
// two loads of 32 lanes, the second half empty, and they begin anywhere.
// But PLANES planes are one contiguous piece that begins at a multiple
// of 16 bytes. The block copies it to shared memory, four floats a lane
// and load. Then SHARE lanes add up each plane. The loads are marked as
// streaming (evict first): lines of the L2 that somebody wrote before
// stay there, and their write to HBM is not part of this kernel's time.
// What limits it: HBM.
//
// Launch: grid ceil(planes / PLANES), block PLANES * SHARE, shared
// memory 4 * PLANES * area bytes. PLANES and SHARE are defines, PLANES
// a multiple of 32, SHARE a power of two up to 32.

constexpr int BLOCK = PLANES * SHARE;

extern "C" __global__ void __launch_bounds__(BLOCK) global_tile(
    const float* __restrict__ x,  // [planes, area], planes = N * C
    float* __restrict__ y,        // [planes]
    int planes, int area) {       // area = H * W
  extern __shared__ __align__(16) float tile[];  // [PLANES, area]
  int first = blockIdx.x * PLANES;               // plane
  int count = min(PLANES, planes - first) * area;
  x += (size_t)first * area;

#pragma unroll 4
  for (int i = 4 * threadIdx.x; i < count; i += 4 * BLOCK)
    if (i + 4 <= count)
      *(float4*)(tile + i) = __ldcs((const float4*)(x + i));
    else
      for (int j = i; j < count; ++j) tile[j] = x[j];
  __syncthreads();

  int plane = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  float sum = 0.0f;
  if (first + plane < planes)
    for (int pixel = lane; pixel < area; pixel += SHARE)
      sum += tile[plane * area + pixel];
  for (int lane_mask = SHARE / 2; lane_mask; lane_mask /= 2)
    sum += __shfl_xor_sync(~0u, sum, lane_mask);
  if (lane == 0 && first + plane < planes) y[first + plane] = sum / area;
}
