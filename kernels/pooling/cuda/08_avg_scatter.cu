// Average pooling backward by scatter: one thread per window adds its
// share of the gradient to each of its pixels.
//
// Idea: forward, each pixel of the window gave 1 / divisor of its value.
// Backward, the same share of the gradient goes back over the same
// links. If windows overlap, several threads add to one float, so every
// addition is atomic. dx was set to zero before.
// What limits it: the atomics. There are R * S for each output, and
// those of overlapping windows collide. Their order changes from run to
// run, so the last digits of dx may change too.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) avg_scatter(
    const float* __restrict__ dy,  // [N, C, P, Q]
    float* __restrict__ dx,        // [N, C, H, W], zeros
    Pool shape, int count) {       // count = N * C * P * Q
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int plane = divide(i, shape.by_PQ), row = divide(i, shape.by_Q);
  int q = i - row * shape.Q;      // output column
  int p = row - plane * shape.P;  // output row
  dx += (size_t)plane * shape.H * shape.W;  // [H, W]

  int top = p * shape.u - shape.pad_h;   // the first tap, which may be
  int left = q * shape.v - shape.pad_w;  // outside of the plane
  float share = dy[i] / divisor(p, q, shape);
  for (int r = 0; r < shape.R; ++r)
    for (int s = 0; s < shape.S; ++s) {
      int h = top + r, w = left + s;
      if (h < 0 || h >= shape.H || w < 0 || w >= shape.W) continue;
      atomicAdd(dx + h * shape.W + w, share);
    }
}
