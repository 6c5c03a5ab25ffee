// col2im by atomics: adds each column of the data matrix's gradient to
// the input pixels that it was copied from.
//
// Idea: im2col, reversed. Each thread has one window in one channel and
// adds its R*S elements to the pixels of the window. A pixel is in up
// to R*S windows, so several threads add to it. Only an atomic addition
// loses none of these terms. The gradient must be 0 before the launch.
// What limits it: the atomic units of the L2 cache. A plain store would
// move the same bytes without reading the sum back. The order of the
// additions changes from run to run, and with it the last bits.
//
// Launch: grid (ceil(C*P*Q / BLOCK), N), block BLOCK.

#include "backward.cuh"

extern "C" __global__ void col2im_atomics(
    const float* __restrict__ column_gradient,  // [N, C*R*S, P*Q]
    float* __restrict__ input_gradient,         // dx [N, C, H, W]
    Conv shape) {
  int window = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (window >= shape.C * shape.P * shape.Q) return;
  int q = window % shape.Q;
  int p = window / shape.Q % shape.P;
  int c = window / (shape.P * shape.Q);  // channel

  size_t plane = (size_t)n * shape.C + c;
  size_t row_length = shape.P * shape.Q;  // of the data matrix
  float* channel_gradient =  // [H, W]
      input_gradient + plane * shape.H * shape.W;
  const float* column =
      column_gradient + plane * shape.R * shape.S * row_length;
  column += p * shape.Q + q;
  for (int r = 0; r < shape.R; ++r)
    for (int s = 0; s < shape.S; ++s) {
      int h = p * shape.u - shape.pad_h + r * shape.dilation_h;
      int w = q * shape.v - shape.pad_w + s * shape.dilation_w;
      bool inside = 0 <= h && h < shape.H && 0 <= w && w < shape.W;
      if (!inside) continue;  // the gradient of a zero in the padding
      int row = filter_row(shape, r) * shape.S + filter_col(shape, s);
      atomicAdd(&channel_gradient[(size_t)h * shape.W + w],
                column[row * row_length]);
    }
}
