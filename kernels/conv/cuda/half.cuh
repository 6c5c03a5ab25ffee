// What the FP16 convolutions share. Channels are the last dimension of
// the input and of the output (NHWC), so that 8 channels of a pixel
// are 16 adjacent bytes.

#include "conv.cuh"

// An output pixel: image, row, column.
struct OutputPixel {
  int n, p, q;
};

// The output pixel with this number, counted along the columns, then
// the rows, then the images.
__device__ inline OutputPixel output_pixel(int number,
                                           const Conv& shape) {
  int row = number / shape.Q;
  return {row / shape.P, row % shape.P, number % shape.Q};
}

// The step of the sum that a tile belongs to: a filter tap (r, s) and
// the channels from c on.
struct Step {
  int r, s, c;
};

// Goes on to the next `channels` channels, then to the next tap.
__device__ inline void advance(Step& step, int channels,
                               const Conv& shape) {
  step.c += channels;
  if (step.c < shape.C) return;
  step.c = 0;
  if (++step.s < shape.S) return;
  step.s = 0;
  ++step.r;
}

// The distance of a tap from the first one in the input. A filter
// that is applied in reverse order begins with its last tap.
__device__ inline int tap_row(int r, const Conv& shape) {
  return (shape.flip ? shape.R - 1 - r : r) * shape.dilation_h;
}

__device__ inline int tap_column(int s, const Conv& shape) {
  return (shape.flip ? shape.S - 1 - s : s) * shape.dilation_w;
}

// Returns both numbers rounded to FP16, `low` in the lower 16 bits.
__device__ inline unsigned pair(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;"
      : "=r"(both) : "f"(high), "f"(low));
  return both;
}
