// D = rowsum(dO * O): one warp per query.
//
// Idea: the gradient of a softmax subtracts a weighted mean of dP from
// each element of its row. That mean is the product of a row of dO with
// the same row of O (FlashAttention-2, arXiv 2307.08691). It needs only
// 2 d numbers, not the N of a row of P. The lanes read neighbouring
// elements, and shuffles add their sums.
// What limits it: memory traffic. dO and O are read once.
//
// Launch: grid ceil(rows / WARPS), block 32 * WARPS; rows is B*H*N.
// WARPS is a define. So is BF16 if dO and O are 16-bit numbers.

#ifdef BF16
#include "halves.cuh"
typedef Half Element;
__device__ inline float number(Half x) {
  float result;
#if BF16
  result = __uint_as_float((unsigned)x << 16);
#else
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x));
#endif
  return result;
}
#else
typedef float Element;
__device__ inline float number(float x) { return x; }
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS) row_dots(
    const Element* __restrict__ dO,  // [B*H, N, d]
    const Element* __restrict__ O,   // [B*H, N, d]
    float* __restrict__ D,           // [B*H, N]
    int rows, int d) {
  int lane = threadIdx.x % 32;
  int row = blockIdx.x * WARPS + threadIdx.x / 32;  // of all heads
  if (row >= rows) return;
  dO += (size_t)row * d, O += (size_t)row * d;

  float sum = 0.0f;
  for (int dim = lane; dim < d; dim += 32)
    sum += number(dO[dim]) * number(O[dim]);
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    sum += __shfl_xor_sync(~0u, sum, lane_mask);
  if (lane == 0) D[row] = sum;
}
