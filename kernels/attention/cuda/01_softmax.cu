// P = softmax(S), row by row: a warp per query.
//
// Idea: P = exp(S - m) / l, where m is the row's maximum, so that no
// exponent is above 0 and nothing overflows however large the scores
// are, and l the sum of the exponentials. Lanes walk the row side by
// side; maximum and sum pass from lane to lane. If causal, the keys
// after the query are hidden: they get 0, and S is not read there.
// What limits it: three passes over a row, and not a multiplication
// for any of its floats: memory alone.
//
// Launch: grid ceil(rows / WARPS), block 32 * WARPS; rows is B*H*N.
// WARPS is a define; so is BF16 where P is to be multiplied as halves.

#include "attention.cuh"
#ifdef BF16
#include "halves.cuh"
typedef Half Weight;
__device__ inline Weight weight(float p) { return pair(p, 0.0f); }
#else
typedef float Weight;
__device__ inline Weight weight(float p) { return p; }
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS) softmax(
    const float* __restrict__ S,  // [B*H, N, N]
    Weight* __restrict__ P,       // [B*H, N, N]
    int rows, int N, int causal) {
  int lane = threadIdx.x % 32;
  int row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  int keys = seen(row % N, N, causal);
  S += (size_t)row * N;
  P += (size_t)row * N;

  float m = -INFINITE;
  for (int j = lane; j < keys; j += 32) m = fmaxf(m, S[j]);
  for (int other = 16; other; other /= 2)
    m = fmaxf(m, __shfl_xor_sync(~0u, m, other));

  float l = 0.0f;
  for (int j = lane; j < keys; j += 32) l += expf(S[j] - m);
  for (int other = 16; other; other /= 2)
    l += __shfl_xor_sync(~0u, l, other);

  for (int j = lane; j < N; j += 32)
    P[j] = weight(j < keys ? expf(S[j] - m) / l : 0.0f);
}
