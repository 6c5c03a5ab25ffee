// Max pooling, one thread per window.
//
// Idea: a thread goes through the R x S pixels of its window, row by
// row. It keeps the largest value and its place in the plane. The
// backward pass needs that place.
// What limits it: loads. If windows overlap, neighbouring threads load
// the same pixel again, from a cache. A thread has few loads in flight.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) max_window(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, P, Q]
    int* __restrict__ index,      // [N, C, P, Q], h * W + w
    Pool shape, int count) {      // count = N * C * P * Q
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int plane = divide(i, shape.by_PQ), row = divide(i, shape.by_Q);
  int q = i - row * shape.Q;      // output column
  int p = row - plane * shape.P;  // output row
  x += (size_t)plane * shape.H * shape.W;  // [H, W]

  int top = p * shape.u - shape.pad_h;   // the first tap, which may be
  int left = q * shape.v - shape.pad_w;  // outside of the plane
  float best = -INFINITE;
  int place = first_inside(top, shape.dilation_h) * shape.W +
              first_inside(left, shape.dilation_w);
  for (int r = 0; r < shape.R; ++r)
    for (int s = 0; s < shape.S; ++s) {
      int h = top + r * shape.dilation_h;
      int w = left + s * shape.dilation_w;
      if (h < 0 || h >= shape.H || w < 0 || w >= shape.W) continue;
      float value = x[h * shape.W + w];
      if (larger(value, best)) best = value, place = h * shape.W + w;
    }
  y[i] = best, index[i] = place;
}
