// Convolution by FFT, the end: the output pixels picked from what the
// inverse transforms gave.
//
// Idea: a transform gives a pixel for every place of the filter, as if
// the stride were 1. The strided output is a part of those; of a
// transform's last rows and columns, where the filter ran over the
// edge, none is right and none is picked. cuFFT leaves the factor
// rows * columns in, here it goes. Bias and ReLU come for nothing.
// What limits it: bytes. At stride 2 three of four pixels were
// computed to be thrown away.
//
// Launch: grid (ceil(K*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"
#include "fft.cuh"
#include "layer.cuh"

extern "C" __global__ void fft_pick(
    const float* __restrict__ dense,  // [N, down, across, K, rows,
                                      //  columns]
    const float* __restrict__ b,      // [K], read if there is a bias
    float* __restrict__ y,            // [N, K, P, Q]
    Conv s, Cut f, Layer layer) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (i >= s.K * s.P * s.Q) return;
  int h = i / s.Q % s.P * s.u, w = i % s.Q * s.v;  // dense pixel
  int k = i / (s.P * s.Q);
  int down = h / f.step_h, across = w / f.step_w;  // its transform

  size_t map = (size_t)n * f.down + down;
  map = (map * f.across + across) * s.K + k;
  int row = h - down * f.step_h, column = w - across * f.step_w;
  float sum = dense[(map * f.rows + row) * f.columns + column];
  sum /= (float)f.rows * (float)f.columns;
  y += (size_t)n * s.K * s.P * s.Q;
  y[i] = finished(sum, b, k, layer);
}
