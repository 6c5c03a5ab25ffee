// Shared by the kernels in which a thread owns a patch of pixels of dx.

#include "patch.cuh"

// The pixels: whole strides. So each patch has the same windows, counted
// from its own.
constexpr int PIXELS_H = DOWN * STRIDE_H;
constexpr int PIXELS_W = ACROSS * STRIDE_W;

// The windows that reach the patch: WINDOWS_H x WINDOWS_W of them, the
// first FIRST_P rows and FIRST_Q columns from the patch's own.
constexpr int FIRST_P = ceil_div(PAD_H - (SPAN_H - 1), STRIDE_H);
constexpr int FIRST_Q = ceil_div(PAD_W - (SPAN_W - 1), STRIDE_W);
constexpr int WINDOWS_H = (PAD_H + PIXELS_H - 1) / STRIDE_H - FIRST_P + 1;
constexpr int WINDOWS_W = (PAD_W + PIXELS_W - 1) / STRIDE_W - FIRST_Q + 1;

struct Pixels {
  int plane, h, w;  // the first pixel of a patch
  int p, q;         // h / STRIDE_H, w / STRIDE_W
};

__device__ inline Pixels pixels_of(int i, const Pool& shape) {
  Place place = place_of(i, shape);
  return {place.plane, place.p * STRIDE_H, place.q * STRIDE_W, place.p,
          place.q};
}

// Returns whether window (down, across) has a tap on pixel (row, col).
__device__ constexpr bool contains(int down, int across, int row,
                                   int col) {
  int top = (FIRST_P + down) * STRIDE_H - PAD_H;
  int left = (FIRST_Q + across) * STRIDE_W - PAD_W;
  return tap_at(row - top, WINDOW_H, DILATION_H) >= 0 &&
         tap_at(col - left, WINDOW_W, DILATION_W) >= 0;
}

__device__ inline void store_pixels(
    float* dx, const float (&sums)[PIXELS_H][PIXELS_W],
    const Pixels& pixels, const Pool& shape) {
#pragma unroll
  for (int row = 0; row < PIXELS_H; ++row)
    if (pixels.h + row < shape.H)
      store_row<PIXELS_W, float, float2, float4>(
          dx + (size_t)(pixels.h + row) * shape.W, sums[row], pixels.w,
          shape.W);
}
