// Convolution by FFT, the input: each map written out with its zeros
// at the size of the transforms.
//
// Idea: a transform takes its array to repeat without end, so what
// slides out on the right comes in on the left. Where the filter
// stays inside the array nothing does: an array as large as the
// padded input gives every output pixel right, an array that is a
// part of it those whose windows lie inside; the next part begins
// where they end (overlap-save). One thread per float.
// What limits it: it computes nothing, it moves bytes; the overlap is
// written twice.
//
// Launch: grid (ceil(C*rows*columns / BLOCK), N*down*across), block
// BLOCK.

#include "conv.cuh"
#include "fft.cuh"

extern "C" __global__ void fft_pad_input(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ padded,   // [N, down, across, C, rows, columns]
    Conv s, Cut f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= s.C * f.rows * f.columns) return;
  int tile = blockIdx.y % (f.down * f.across);
  int n = blockIdx.y / (f.down * f.across);  // image
  int c = i / (f.rows * f.columns);
  int h = i / f.columns % f.rows + tile / f.across * f.step_h;
  int w = i % f.columns + tile % f.across * f.step_w;
  h -= s.pad_h, w -= s.pad_w;

  bool inside = 0 <= h && h < s.H && 0 <= w && w < s.W;
  float value = 0.0f;
  if (inside) value = x[(((size_t)n * s.C + c) * s.H + h) * s.W + w];
  padded += (size_t)blockIdx.y * s.C * f.rows * f.columns;
  padded[i] = value;
}
