// What the kernels that compute P and dS row by row share.

constexpr int WARPS = BLOCK / 32;

// Returns the product of a row in global memory with one in shared
// memory, to every lane. The lanes read neighbouring elements.
__device__ inline float warp_dot(const float* row,
                                 const float* shared_row, int d) {
  float sum = 0.0f;
  for (int dim = threadIdx.x % 32; dim < d; dim += 32)
    sum += row[dim] * shared_row[dim];
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    sum += __shfl_xor_sync(~0u, sum, lane_mask);
  return sum;
}

// Returns this thread's part of the sum of the rows of X from `first`
// to `end` - 1, multiplied by their weights. The threads form groups
// of d, one thread per column. Group g adds rows g, g + groups ...
__device__ inline float weighted_sum(const float* weights,
                                     const float* X, int first, int end,
                                     int d) {
  int groups = BLOCK / d, dim = threadIdx.x % d;
  float sum = 0.0f;
  if (threadIdx.x < groups * d)
    for (int i = first + threadIdx.x / d; i < end; i += groups)
      sum += weights[i] * X[(size_t)i * d + dim];
  return sum;
}

// Returns the sum of all groups' parts of column threadIdx.x < d.
__device__ inline float add_groups(const float* partial, int d) {
  float sum = partial[threadIdx.x];
  for (int group = 1; group < BLOCK / d; ++group)
    sum += partial[group * d + threadIdx.x];
  return sum;
}
