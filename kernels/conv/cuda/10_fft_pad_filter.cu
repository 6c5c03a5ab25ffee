// Convolution by FFT, the filters: each written out at the size of
// the transforms, its taps in the corner, zeros elsewhere.
//
// Idea: two spectra can be multiplied only where both have the same
// frequencies, so a filter of 3 x 3 becomes as large as the image.
// Dilation costs nothing more: the zeros between the taps are only
// some of the many. One thread per float.
// What limits it: bytes, and how many: rows*columns / (R*S) times
// those of the filters. It is what small transforms are for.
//
// Launch: grid (ceil(C*rows*columns / BLOCK), K), block BLOCK.

#include "conv.cuh"
#include "fft.cuh"

extern "C" __global__ void fft_pad_filter(
    const float* __restrict__ w,  // [K, C, R, S]
    float* __restrict__ padded,   // [K, C, rows, columns]
    Conv s, Cut f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= s.C * f.rows * f.columns) return;
  int k = blockIdx.y;  // filter
  int c = i / (f.rows * f.columns);
  int row = i / f.columns % f.rows, column = i % f.columns;
  int r = row / s.dilation_h, t = column / s.dilation_w;  // its tap
  bool tap = row % s.dilation_h == 0 && column % s.dilation_w == 0;
  tap = tap && r < s.R && t < s.S;
  if (s.flip) r = s.R - 1 - r, t = s.S - 1 - t;

  float value = 0.0f;
  if (tap) value = w[(((size_t)k * s.C + c) * s.R + r) * s.S + t];
  padded += (size_t)k * s.C * f.rows * f.columns;
  padded[i] = value;
}
