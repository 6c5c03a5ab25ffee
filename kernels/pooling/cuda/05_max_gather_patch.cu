// Max pooling backward by gather, a patch of pixels per thread: each
// output is loaded about once.
//
// Idea: neighbouring pixels are in the same windows. A thread owns a
// patch of PIXELS_H x PIXELS_W pixels of dx. It loads dy and index of
// each window that reaches the patch once, and compares the index with
// every pixel that both contain. The window is known to the compiler:
// which pixels these are costs nothing. The sums stay in registers and
// are stored four at once.
// What limits it: HBM.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "gather.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) max_gather_patch(
    const float* __restrict__ dy,   // [N, C, P, Q]
    const int* __restrict__ index,  // [N, C, P, Q], h * W + w
    float* __restrict__ dx,         // [N, C, H, W]
    Pool shape, int count) {        // count: patches of all planes
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  Pixels pixels = pixels_of(i, shape);
  dy += (size_t)pixels.plane * shape.P * shape.Q;     // [P, Q]
  index += (size_t)pixels.plane * shape.P * shape.Q;  // [P, Q]
  dx += (size_t)pixels.plane * shape.H * shape.W;     // [H, W]

  float sums[PIXELS_H][PIXELS_W] = {};
#pragma unroll
  for (int down = 0; down < WINDOWS_H; ++down)
#pragma unroll
    for (int across = 0; across < WINDOWS_W; ++across) {
      int p = pixels.p + FIRST_P + down, q = pixels.q + FIRST_Q + across;
      float gradient = 0.0f;
      int place = -1;
      if (0 <= p && p < shape.P && 0 <= q && q < shape.Q)
        gradient = dy[p * shape.Q + q], place = index[p * shape.Q + q];
#pragma unroll
      for (int row = 0; row < PIXELS_H; ++row)
#pragma unroll
        for (int col = 0; col < PIXELS_W; ++col)
          if (contains(down, across, row, col) &&
              place == (pixels.h + row) * shape.W + pixels.w + col)
            sums[row][col] += gradient;
    }
  store_pixels(dx, sums, pixels, shape);
}
