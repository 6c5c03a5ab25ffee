// Max pooling backward by scatter: one thread per window adds its
// gradient to the pixel that was the largest.
//
// Idea: forward, the window took one pixel. Backward, the gradient goes
// back over the same link, to the kept index. If windows overlap, two
// outputs may have taken the same pixel. Then two threads add to one
// float, so the addition is atomic. dx was set to zero before.
// What limits it: dx is written, then read and written again, and the
// additions of colliding threads wait for each other. Their order
// changes from run to run, so the last digits of dx may change too.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) max_scatter(
    const float* __restrict__ dy,   // [N, C, P, Q]
    const int* __restrict__ index,  // [N, C, P, Q], h * W + w
    float* __restrict__ dx,         // [N, C, H, W], zeros
    Pool shape, int count) {        // count = N * C * P * Q
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int plane = divide(i, shape.by_PQ);
  dx += (size_t)plane * shape.H * shape.W;  // [H, W]
  atomicAdd(dx + index[i], dy[i]);
}
