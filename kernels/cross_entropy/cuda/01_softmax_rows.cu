// Cross-entropy in three launches, the first: softmax, to memory.
//
// Idea: loss = -log(softmax(x)[label]), one operation after the other,
// as a framework without fusion runs it. This kernel writes softmax(x)
// for all numbers of a row, and the log-sum-exp of the row. A block
// reads its row three times: for the maximum m, for the sum l of
// exp(x - m), and for the results.
// What limits it: memory. The three launches read x three times, write
// two matrices as large as x and read one of them. The loss needs one
// number of each row. And a probability below 1e-38 becomes 0. Its
// logarithm is -infinity.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK is a define.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) softmax_rows(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ p,        // [M, N]
    float* __restrict__ lse,      // [M]
    int N) {
  __shared__ Running warp_m[WARPS], warp_l[WARPS];
  int row = blockIdx.x, thread = threadIdx.x;
  x += (size_t)row * N, p += (size_t)row * N;  // [N]

  float m = LOWEST;
  for (int col = thread; col < N; col += BLOCK) m = fmaxf(m, x[col]);
  m = over_block({m, 0.0f}, warp_m).m;

  float l = 0.0f;
  for (int col = thread; col < N; col += BLOCK) l += expf(x[col] - m);
  l = over_block({m, l}, warp_l).l;

  for (int col = thread; col < N; col += BLOCK)
    p[col] = expf(x[col] - m) / l;
  if (thread == 0) lse[row] = m + logf(l);
}
