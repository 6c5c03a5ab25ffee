// im2col: write every window of the input out as a column of the
// data matrix.
//
// Idea: once the windows are columns, convolution is one matrix
// product, filters x data matrix. Each thread copies the R*S taps of
// one window in one channel. Neighbouring threads own neighbouring
// columns, so a warp's stores fall side by side.
// What limits it: it computes nothing. It moves up to R*S times the
// input through HBM, once out and once back in when the product
// reads it.
//
// Launch: grid (ceil(C*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"

extern "C" __global__ void im2col(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ col,      // [N, C*R*S, P*Q]
    Conv s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (i >= s.C * s.P * s.Q) return;
  int q = i % s.Q;  // window (p, q) of channel c
  int p = i / s.Q % s.P;
  int c = i / (s.P * s.Q);

  size_t plane = (size_t)n * s.C + c;
  size_t row = s.P * s.Q;  // floats in a row of col
  const float* map = x + plane * s.H * s.W;  // [H, W]
  float* column = col + plane * s.R * s.S * row;
  column += p * s.Q + q;
  for (int r = 0; r < s.R; ++r)
    for (int t = 0; t < s.S; ++t) {
      float value = tap(map, s, p, q, r, t);
      column[(r * s.S + t) * row] = value;
    }
}
