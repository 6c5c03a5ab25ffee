// Convolution by FFT, the filters: each is copied to an array of the
// transform's size, its taps in the corner, zeros elsewhere.
//
// Idea: two spectra can be multiplied only if they have the same
// frequencies. A filter of 3 x 3 therefore becomes as large as the
// transform. Dilation has no extra cost: the zeros between the taps
// are part of the padding. One thread writes one float.
// What limits it: memory traffic. It writes rows*columns / (R*S) times
// the bytes of the filters. Small transforms write less.
//
// Launch: grid (ceil(C*rows*columns / BLOCK), K), block BLOCK.

#include "conv.cuh"
#include "fft.cuh"

extern "C" __global__ void fft_pad_filter(
    const float* __restrict__ filters,  // w [K, C, R, S]
    float* __restrict__ padded,         // [K, C, rows, columns]
    Conv shape, Tiling tiling) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= shape.C * tiling.rows * tiling.columns) return;
  int k = blockIdx.y;  // filter
  int c = element / (tiling.rows * tiling.columns);
  int row = element / tiling.columns % tiling.rows;
  int column = element % tiling.columns;
  int r = row / shape.dilation_h, s = column / shape.dilation_w;
  bool on_tap =
      row % shape.dilation_h == 0 && column % shape.dilation_w == 0;
  on_tap = on_tap && r < shape.R && s < shape.S;
  if (shape.flip) r = shape.R - 1 - r, s = shape.S - 1 - s;

  float value = 0.0f;
  if (on_tap)
    value = filters[(((size_t)k * shape.C + c) * shape.R + r) * shape.S +
                    s];
  padded += (size_t)k * shape.C * tiling.rows * tiling.columns;
  padded[element] = value;
}
