// Average pooling, a patch of outputs per thread: each pixel is loaded
// about once.
//
// Idea: the windows of neighbouring outputs overlap. A thread computes
// DOWN x ACROSS outputs. It loads the PATCH_H x PATCH_W pixels under
// their windows into registers, four at once where they are aligned,
// and uses each for all windows that contain it. All loads run before
// the first addition. Pixels outside of the plane are zero.
// What limits it: HBM. Only the borders of patches are loaded twice,
// and they come from a cache.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "patch.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) avg_patch(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, P, Q]
    Pool shape, int count) {      // count: patches of all planes
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  Place place = place_of(i, shape);
  x += (size_t)place.plane * shape.H * shape.W;  // [H, W]
  y += (size_t)place.plane * shape.P * shape.Q;  // [P, Q]
  int top = place.p * STRIDE_H - PAD_H;
  int left = place.q * STRIDE_W - PAD_W;

  float patch[PATCH_H][PATCH_W];
#pragma unroll
  for (int row = 0; row < PATCH_H; ++row) {
    int h = top + row;
    load_row(patch[row], x + (ptrdiff_t)h * shape.W, left, shape.W,
             0 <= h && h < shape.H, 0.0f);
  }

#pragma unroll
  for (int down = 0; down < DOWN; ++down) {
    int p = place.p + down;
    if (p >= shape.P) return;
    float mean[ACROSS];
#pragma unroll
    for (int across = 0; across < ACROSS; ++across) {
      float sum = 0.0f;
#pragma unroll
      for (int r = 0; r < WINDOW_H; ++r) {
        float row_sum = 0.0f;
#pragma unroll
        for (int s = 0; s < WINDOW_W; ++s)
          row_sum += patch[down * STRIDE_H + r][across * STRIDE_W + s];
        sum += row_sum;
      }
      mean[across] = __fdividef(sum, divisor(p, place.q + across, shape));
    }
    store_row<ACROSS, float, float2, float4>(
        y + (size_t)p * shape.Q, mean, place.q, shape.Q);
  }
}
