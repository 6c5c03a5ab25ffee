// Average pooling, one thread per window.
//
// Idea: a thread adds the R x S pixels of its window, row by row, and
// divides by their number. Padding adds nothing. Whether it counts in
// the divisor is a choice (include_pad).
// What limits it: loads. If windows overlap, neighbouring threads load
// the same pixel again, from a cache. A thread has few loads in flight.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) avg_window(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, P, Q]
    Pool shape, int count) {      // count = N * C * P * Q
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int plane = divide(i, shape.by_PQ), row = divide(i, shape.by_Q);
  int q = i - row * shape.Q;      // output column
  int p = row - plane * shape.P;  // output row
  x += (size_t)plane * shape.H * shape.W;  // [H, W]

  int top = p * shape.u - shape.pad_h;   // the first tap, which may be
  int left = q * shape.v - shape.pad_w;  // outside of the plane
  float sum = 0.0f;
  for (int r = 0; r < shape.R; ++r)
    for (int s = 0; s < shape.S; ++s) {
      int h = top + r, w = left + s;
      if (h < 0 || h >= shape.H || w < 0 || w >= shape.W) continue;
      sum += x[h * shape.W + w];
    }
  y[i] = sum / divisor(p, q, shape);
}
