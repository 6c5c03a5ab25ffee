// col2im by gather: each input pixel adds up the elements of the data
// matrix's gradient that were copied from it.
//
// Idea: one thread per input pixel, so no two threads add to the same
// sum. For each tap (r, s) the thread computes which output pixel
// (p, q) read this pixel through it. There is at most one. Its sum is
// in a register and is stored once. The order of the terms is fixed,
// so every run gives the same bits.
// What limits it: memory traffic. The column gradient is read once and
// has up to R*S times the elements of the input.
//
// Launch: grid (ceil(C*H*W / BLOCK), N), block BLOCK.

#include "backward.cuh"

extern "C" __global__ void col2im_gather(
    const float* __restrict__ column_gradient,  // [N, C*R*S, P*Q]
    float* __restrict__ input_gradient,         // dx [N, C, H, W]
    Conv shape) {
  int input_pixel = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (input_pixel >= shape.C * shape.H * shape.W) return;
  int w = input_pixel % shape.W;
  int h = input_pixel / shape.W % shape.H;
  int c = input_pixel / (shape.H * shape.W);  // channel

  size_t plane = (size_t)n * shape.C + c;
  size_t row_length = shape.P * shape.Q;  // of the data matrix
  const float* channel_rows =  // [R, S, P*Q]
      column_gradient + plane * shape.R * shape.S * row_length;
  float sum = 0.0f;
  for (int r = 0; r < shape.R; ++r) {
    int p = fed_output(h, shape.pad_h, r * shape.dilation_h, shape.u,
                       shape.P);
    if (p < 0) continue;
    for (int s = 0; s < shape.S; ++s) {
      int q = fed_output(w, shape.pad_w, s * shape.dilation_w, shape.v,
                         shape.Q);
      if (q < 0) continue;
      int row = filter_row(shape, r) * shape.S + filter_col(shape, s);
      sum += channel_rows[row * row_length + p * shape.Q + q];
    }
  }
  input_gradient[plane * shape.H * shape.W +
                 (size_t)h * shape.W + w] = sum;
}
