// im2col: copies each window of the input to a column of the data
// matrix.
//
// Idea: with the windows as columns, convolution is one matrix
// product: filters times data matrix. Each thread copies the R*S
// pixels of one window in one channel. Neighbouring threads copy
// neighbouring columns, so the stores of a warp are contiguous.
// What limits it: memory traffic, because the kernel computes
// nothing. It writes up to R*S times the input to HBM. The matrix
// product then reads the same bytes back.
//
// Launch: grid (ceil(C*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"

extern "C" __global__ void im2col(
    const float* __restrict__ input,   // x [N, C, H, W]
    float* __restrict__ data_matrix,   // col [N, C*R*S, P*Q]
    Conv shape) {
  int window = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (window >= shape.C * shape.P * shape.Q) return;
  int q = window % shape.Q;
  int p = window / shape.Q % shape.P;
  int c = window / (shape.P * shape.Q);  // channel

  size_t plane = (size_t)n * shape.C + c;
  size_t row_length = shape.P * shape.Q;  // of the data matrix
  const float* input_channel =  // [H, W]
      input + plane * shape.H * shape.W;
  float* column = data_matrix + plane * shape.R * shape.S * row_length;
  column += p * shape.Q + q;
  for (int r = 0; r < shape.R; ++r)
    for (int s = 0; s < shape.S; ++s) {
      float value = input_pixel(input_channel, shape, p, q, r, s);
      column[(r * shape.S + s) * row_length] = value;
    }
}
