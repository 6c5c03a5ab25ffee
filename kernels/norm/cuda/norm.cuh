// Shared by the norm kernels.

// Of some numbers: how many they are, their mean, and M2, the sum of
// their squared distances from the mean. M2 / n is the variance.
struct Moments {
  float n, mean, M2;
};

// Returns the moments with one more number (Welford 1962).
__device__ inline Moments add(Moments a, float x) {
  float n = a.n + 1.0f, distance = x - a.mean;
  float mean = a.mean + distance / n;
  return {n, mean, a.M2 + distance * (x - mean)};
}

// Returns the moments of both parts together (Chan et al. 1983).
__device__ inline Moments merge(Moments a, Moments b) {
  float n = a.n + b.n, distance = b.mean - a.mean;
  float share = n > 0.0f ? b.n / n : 0.0f;  // of b in all numbers
  return {n, a.mean + distance * share,
          a.M2 + b.M2 + distance * distance * a.n * share};
}

// Returns 1 / standard deviation; eps keeps it finite.
__device__ inline float inverse_std(float variance, float eps) {
  return 1.0f / sqrtf(variance + eps);
}

// Returns where element i of a channel is in x. A channel has HW pixels
// in each image. NCHW stores them one after the other. NHWC stores the
// C channels of a pixel one after the other.
template <bool NHWC_LAYOUT>
__device__ inline size_t offset(int i, int channel, int C, int HW) {
  if (NHWC_LAYOUT) return (size_t)i * C + channel;
  return ((size_t)(i / HW) * C + channel) * HW + i % HW;
}

// Returns the sum over the lanes of a warp, in each of them.
__device__ inline float sum_of_warp(float value) {
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    value += __shfl_xor_sync(~0u, value, lane_mask);
  return value;
}

// Returns the sum over the block, in each thread. One barrier:
// `warp_values` may be used again only after the next one.
template <int COUNT>
__device__ inline float sum_of_block(float value,
                                     float (&warp_values)[COUNT]) {
  value = sum_of_warp(value);
  if (threadIdx.x % 32 == 0) warp_values[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_values[0];
  for (int warp = 1; warp < COUNT; ++warp) value += warp_values[warp];
  return value;
}

// Returns the moments over the lanes of a warp, in each of them.
__device__ inline Moments merge_warp(Moments own) {
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    own = merge(own, {__shfl_xor_sync(~0u, own.n, lane_mask),
                      __shfl_xor_sync(~0u, own.mean, lane_mask),
                      __shfl_xor_sync(~0u, own.M2, lane_mask)});
  return own;
}

// Returns the moments over the block, in each thread. One barrier.
template <int COUNT>
__device__ inline Moments merge_block(Moments own,
                                      Moments (&warp_moments)[COUNT]) {
  own = merge_warp(own);
  if (threadIdx.x % 32 == 0) warp_moments[threadIdx.x / 32] = own;
  __syncthreads();
  own = warp_moments[0];
  for (int warp = 1; warp < COUNT; ++warp)
    own = merge(own, warp_moments[warp]);
  return own;
}
