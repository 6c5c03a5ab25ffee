// Max pooling backward by gather: one thread per pixel looks at the
// windows that contain it.
//
// Idea: the links of the forward pass, read from the other end. A pixel
// is in at most ceil(R / u) * ceil(S / v) windows. Its thread reads the
// kept index of each, and adds the gradient of those that took this
// pixel. No other thread writes to the pixel: no atomics, no zeros
// before, and the sum has one fixed order.
// What limits it: loads. Neighbouring pixels are in the same windows, so
// dy and index are loaded several times, from a cache.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) max_gather(
    const float* __restrict__ dy,   // [N, C, P, Q]
    const int* __restrict__ index,  // [N, C, P, Q], h * W + w
    float* __restrict__ dx,         // [N, C, H, W]
    Pool shape, int count) {        // count = N * C * H * W
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int plane = divide(i, shape.by_HW), row = divide(i, shape.by_W);
  int w = i - row * shape.W;      // input column
  int h = row - plane * shape.H;  // input row
  dy += (size_t)plane * shape.P * shape.Q;     // [P, Q]
  index += (size_t)plane * shape.P * shape.Q;  // [P, Q]

  int bottom = h + shape.pad_h, right = w + shape.pad_w;
  int span_h = (shape.R - 1) * shape.dilation_h;
  int span_w = (shape.S - 1) * shape.dilation_w;
  int first_p = max(0, ceil_div(bottom - span_h, shape.u));
  int first_q = max(0, ceil_div(right - span_w, shape.v));
  float sum = 0.0f;
  for (int p = first_p; p < shape.P && p * shape.u <= bottom; ++p)
    for (int q = first_q; q < shape.Q && q * shape.v <= right; ++q)
      if (index[p * shape.Q + q] == h * shape.W + w)
        sum += dy[p * shape.Q + q];
  dx[i] = sum;
}
