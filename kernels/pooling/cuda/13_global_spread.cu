// Global average pooling backward, one thread per pixel.
//
// Idea: forward, each pixel of a plane gave 1 / (H * W) of its value.
// Backward, each gets the same share of the plane's gradient. A pixel is
// in one window only, so nothing collides.
// What limits it: 4 bytes are stored per thread, and each thread divides.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) global_spread(
    const float* __restrict__ dy,  // [planes], planes = N * C
    float* __restrict__ dx,        // [planes, area], area = H * W
    Magic by_area, int area, int count) {  // count = planes * area
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  dx[i] = dy[divide(i, by_area)] / area;
}
