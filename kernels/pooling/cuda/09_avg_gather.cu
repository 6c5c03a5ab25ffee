// Average pooling backward by gather: one thread per pixel adds the
// shares of the windows that contain it.
//
// Idea: the links of the forward pass, read from the other end. A pixel
// is in at most ceil(R / u) * ceil(S / v) windows. Each gives it its
// gradient divided by its divisor. No other thread writes to the pixel:
// no atomics, no zeros before, and the sum has one fixed order.
// What limits it: loads and divisions. Neighbouring pixels are in the
// same windows, so dy is loaded several times, from a cache.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) avg_gather(
    const float* __restrict__ dy,  // [N, C, P, Q]
    float* __restrict__ dx,        // [N, C, H, W]
    Pool shape, int count) {       // count = N * C * H * W
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int plane = divide(i, shape.by_HW), row = divide(i, shape.by_W);
  int w = i - row * shape.W;      // input column
  int h = row - plane * shape.H;  // input row
  dy += (size_t)plane * shape.P * shape.Q;  // [P, Q]

  int bottom = h + shape.pad_h, right = w + shape.pad_w;
  int first_p = max(0, ceil_div(bottom - (shape.R - 1), shape.u));
  int first_q = max(0, ceil_div(right - (shape.S - 1), shape.v));
  float sum = 0.0f;
  for (int p = first_p; p < shape.P && p * shape.u <= bottom; ++p)
    for (int q = first_q; q < shape.Q && q * shape.v <= right; ++q)
      sum += dy[p * shape.Q + q] / divisor(p, q, shape);
  dx[i] = sum;
}
