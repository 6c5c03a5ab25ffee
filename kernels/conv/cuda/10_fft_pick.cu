// Convolution by FFT, the end: output pixels are selected from the
// results of the inverse transforms.
//
// Idea: a transform yields a pixel for every filter position, as if
// the stride were 1. The strided output is a part of these pixels. In
// the last rows and columns the filter left the array: these pixels
// are wrong and are not selected. The results of cuFFT contain the
// factor rows * columns, and this kernel divides by it. Bias and ReLU
// are applied to the same registers.
// What limits it: memory traffic. At stride 2 three of four computed
// pixels are discarded.
//
// Launch: grid (ceil(K*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"
#include "fft.cuh"
#include "layer.cuh"

extern "C" __global__ void fft_pick(
    const float* __restrict__ dense,  // [N, down, across, K, rows,
                                      //  columns]
    const float* __restrict__ bias,   // b [K], or unused
    float* __restrict__ output,       // y [N, K, P, Q]
    Conv shape, Tiling tiling, Layer layer) {
  int output_pixel = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (output_pixel >= shape.K * shape.P * shape.Q) return;
  // The same pixel at stride 1.
  int dense_h = output_pixel / shape.Q % shape.P * shape.u;
  int dense_w = output_pixel % shape.Q * shape.v;
  int k = output_pixel / (shape.P * shape.Q);  // filter
  int tile_row = dense_h / tiling.step_h;
  int tile_col = dense_w / tiling.step_w;

  size_t plane = (size_t)n * tiling.down + tile_row;
  plane = (plane * tiling.across + tile_col) * shape.K + k;
  int row = dense_h - tile_row * tiling.step_h;
  int column = dense_w - tile_col * tiling.step_w;
  float sum =
      dense[(plane * tiling.rows + row) * tiling.columns + column];
  sum /= (float)tiling.rows * (float)tiling.columns;
  output += (size_t)n * shape.K * shape.P * shape.Q;
  output[output_pixel] = apply_bias_relu(sum, bias, k, layer);
}
