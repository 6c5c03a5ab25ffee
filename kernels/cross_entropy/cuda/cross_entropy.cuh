// Shared by the kernels of cross-entropy: the maximum and the sum of a
// part of a row, merged over the threads of a block. BLOCK is a
// define, whole warps.

#define LOWEST -3.402823466e38f  // no finite float is lower
#define INFINITE __int_as_float(0x7f800000)

constexpr int WARPS = BLOCK / 32;

// A part of a row: m is its largest number, or LOWEST if it has none.
// l is the sum of exp(x - m).
struct Running { float m, l; };

// Both sums are rescaled to the larger maximum and added.
__device__ inline Running merge(Running a, Running b) {
  float m = fmaxf(a.m, b.m);
  return {m, a.l * __expf(a.m - m) + b.l * __expf(b.m - m)};
}

// Merges the parts of all threads. Each thread returns the whole. The
// lanes of a warp exchange registers. Then of_warp, in shared memory,
// holds one part of each warp.
__device__ inline Running over_block(Running part,
                                     Running (&of_warp)[WARPS]) {
  for (int lane_mask = 16; lane_mask; lane_mask /= 2) {
    float other_m = __shfl_xor_sync(~0u, part.m, lane_mask);
    float other_l = __shfl_xor_sync(~0u, part.l, lane_mask);
    part = merge(part, {other_m, other_l});
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = part;
  __syncthreads();
  part = of_warp[0];
  for (int warp = 1; warp < WARPS; ++warp)
    part = merge(part, of_warp[warp]);
  return part;
}

// Returns how many floats of a row come before its first multiple of
// 16 bytes. From there on a thread can load four floats at once.
__device__ inline int floats_before_16(const float* row, int N) {
  int floats = (16 - (int)((size_t)row % 16)) % 16 / 4;
  return floats < N ? floats : N;
}

__device__ inline float max_of(float4 v) {
  return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

// Returns the sum of the four exp(x - m).
__device__ inline float sum_of_exp(float4 v, float m) {
  return (__expf(v.x - m) + __expf(v.y - m)) +
         (__expf(v.z - m) + __expf(v.w - m));
}
