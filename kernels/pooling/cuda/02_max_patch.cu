// Max pooling, a patch of outputs per thread: each pixel is loaded about
// once.
//
// Idea: the windows of neighbouring outputs overlap. A thread computes
// DOWN x ACROSS outputs. It loads the PATCH_H x PATCH_W pixels under
// their windows into registers, four at once where they are aligned,
// and uses each for all windows that contain it. All loads run before
// the first comparison. A row of a window is reduced first; the windows
// above and below share nothing of that, but the pixels.
// What limits it: HBM. Only the borders of patches are loaded twice,
// and they come from a cache.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "patch.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) max_patch(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, P, Q]
    int* __restrict__ index,      // [N, C, P, Q], h * W + w
    Pool shape, int count) {      // count: patches of all planes
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  Place place = place_of(i, shape);
  x += (size_t)place.plane * shape.H * shape.W;      // [H, W]
  y += (size_t)place.plane * shape.P * shape.Q;      // [P, Q]
  index += (size_t)place.plane * shape.P * shape.Q;  // [P, Q]
  int top = place.p * STRIDE_H - PAD_H;
  int left = place.q * STRIDE_W - PAD_W;

  float patch[PATCH_H][PATCH_W];
#pragma unroll
  for (int row = 0; row < PATCH_H; ++row) {
    int h = top + row;
    load_row(patch[row], x + (ptrdiff_t)h * shape.W, left, shape.W,
             0 <= h && h < shape.H, -INFINITE);
  }

#pragma unroll
  for (int down = 0; down < DOWN; ++down) {
    int p = place.p + down;
    if (p >= shape.P) return;
    int first_row = first_inside(p * STRIDE_H - PAD_H, DILATION_H);
    float best[ACROSS];
    int best_place[ACROSS];
#pragma unroll
    for (int across = 0; across < ACROSS; ++across) {
      int first_col = left + across * STRIDE_W;  // of the window
      best[across] = -INFINITE;
      best_place[across] = first_row * shape.W +
                           first_inside(first_col, DILATION_W);
#pragma unroll
      for (int r = 0; r < WINDOW_H; ++r) {
        int row = down * STRIDE_H + r * DILATION_H;
        float row_best = -INFINITE;
        int row_col = 0;  // in the patch
#pragma unroll
        for (int s = 0; s < WINDOW_W; ++s) {
          int col = across * STRIDE_W + s * DILATION_W;
          if (larger(patch[row][col], row_best))
            row_best = patch[row][col], row_col = col;
        }
        if (larger(row_best, best[across]))
          best[across] = row_best,
          best_place[across] = (top + row) * shape.W + left + row_col;
      }
    }
    store_row<ACROSS, float, float2, float4>(
        y + (size_t)p * shape.Q, best, place.q, shape.Q);
    store_row<ACROSS, int, int2, int4>(
        index + (size_t)p * shape.Q, best_place, place.q, shape.Q);
  }
}
