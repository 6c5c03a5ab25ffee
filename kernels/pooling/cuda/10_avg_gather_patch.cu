// Average pooling backward by gather, a patch of pixels per thread: each
// output is loaded and divided about once.
//
// Idea: neighbouring pixels are in the same windows. A thread owns a
// patch of PIXELS_H x PIXELS_W pixels of dx. It loads dy of each window
// that reaches the patch, all before the first is used. It divides each
// once, and adds it to every pixel that both contain. The window is
// known to the compiler: which pixels these are costs nothing. The sums
// stay in registers and are stored four at once.
// What limits it: HBM.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "gather.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) avg_gather_patch(
    const float* __restrict__ dy,  // [N, C, P, Q]
    float* __restrict__ dx,        // [N, C, H, W]
    Pool shape, int count) {       // count: patches of all planes
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  Pixels pixels = pixels_of(i, shape);
  dy += (size_t)pixels.plane * shape.P * shape.Q;  // [P, Q]
  dx += (size_t)pixels.plane * shape.H * shape.W;  // [H, W]

  float shares[WINDOWS_H][WINDOWS_W];
#pragma unroll
  for (int down = 0; down < WINDOWS_H; ++down)
#pragma unroll
    for (int across = 0; across < WINDOWS_W; ++across) {
      int p = pixels.p + FIRST_P + down, q = pixels.q + FIRST_Q + across;
      bool inside = 0 <= p && p < shape.P && 0 <= q && q < shape.Q;
      shares[down][across] = inside ? dy[p * shape.Q + q] : 0.0f;
    }
#pragma unroll
  for (int down = 0; down < WINDOWS_H; ++down)
#pragma unroll
    for (int across = 0; across < WINDOWS_W; ++across) {
      int p = pixels.p + FIRST_P + down, q = pixels.q + FIRST_Q + across;
      shares[down][across] =
          __fdividef(shares[down][across], divisor(p, q, shape));
    }

  float sums[PIXELS_H][PIXELS_W] = {};
#pragma unroll
  for (int down = 0; down < WINDOWS_H; ++down)
#pragma unroll
    for (int across = 0; across < WINDOWS_W; ++across)
#pragma unroll
      for (int row = 0; row < PIXELS_H; ++row)
#pragma unroll
        for (int col = 0; col < PIXELS_W; ++col)
          if (contains(down, across, row, col))
            sums[row][col] += shares[down][across];
  store_pixels(dx, sums, pixels, shape);
}
