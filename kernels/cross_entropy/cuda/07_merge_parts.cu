// Cross-entropy with several blocks per row, the second launch.
//
// Idea: a thread merges the SPLITS parts of its row, in their order.
// The result does not depend on which block was ready first.
// What limits it: the launch. The work is a few numbers per row.
//
// Launch: grid ceil(M / BLOCK), block BLOCK, whole warps. BLOCK and
// SPLITS are defines.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) merge_parts(
    const float* __restrict__ x,       // [M, N]
    const int* __restrict__ labels,    // [M], each in 0 .. N - 1
    const float* __restrict__ part_m,  // [M, SPLITS]
    const float* __restrict__ part_l,  // [M, SPLITS]
    float* __restrict__ loss,          // [M]
    float* __restrict__ lse,           // [M]
    int M, int N) {
  int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row >= M) return;
  float picked = x[(size_t)row * N + labels[row]];
  Running all = {LOWEST, 0.0f};
  for (int split = 0; split < SPLITS; ++split) {
    size_t i = (size_t)row * SPLITS + split;
    all = merge(all, {part_m[i], part_l[i]});
  }
  lse[row] = all.m + logf(all.l);
  loss[row] = logf(all.l) - (picked - all.m);
}
