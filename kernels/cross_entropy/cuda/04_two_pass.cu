// Cross-entropy in one kernel that reads a row twice.
//
// Idea: -log(exp(x[label] - m) / l) = log(l) - (x[label] - m). No
// matrix is written: a row needs its maximum m, its sum l and one
// number. The logarithm is taken of l alone, which is at least 1. So
// no loss is infinite, however small a probability is.
// What limits it: the second read of x. If a row is no longer in a
// cache, it comes from HBM again.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK is a define.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) two_pass(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    float* __restrict__ loss,        // [M]
    float* __restrict__ lse,         // [M]
    int N) {
  __shared__ Running warp_m[WARPS], warp_l[WARPS];
  int row = blockIdx.x, thread = threadIdx.x;
  x += (size_t)row * N;  // [N]
  float picked = x[labels[row]];

  float m = LOWEST;
  for (int col = thread; col < N; col += BLOCK) m = fmaxf(m, x[col]);
  m = over_block({m, 0.0f}, warp_m).m;

  float l = 0.0f;
  for (int col = thread; col < N; col += BLOCK) l += expf(x[col] - m);
  l = over_block({m, l}, warp_l).l;

  if (thread == 0) {
    lse[row] = m + logf(l);
    loss[row] = logf(l) - (picked - m);
  }
}
