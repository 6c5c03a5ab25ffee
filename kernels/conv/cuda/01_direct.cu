// Direct convolution: the definition, one thread per output pixel.
//
// Idea: each thread multiplies the C*R*S pixels of its window by the
// filter taps and adds the products. Each channel has its own sum:
// one sum over thousands of floats would lose its last bits. The
// kernel needs no workspace.
// What limits it: each multiply-add waits for two loads. Up to R*S*K
// threads load the same input pixel. Only the caches save
// these repeated loads from HBM.
//
// Launch: grid (ceil(K*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"

extern "C" __global__ void direct(
    const float* __restrict__ input,    // x [N, C, H, W]
    const float* __restrict__ filters,  // w [K, C, R, S]
    float* __restrict__ output,         // y [N, K, P, Q]
    Conv shape) {
  int output_pixel = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (output_pixel >= shape.K * shape.P * shape.Q) return;
  int q = output_pixel % shape.Q;
  int p = output_pixel / shape.Q % shape.P;
  int k = output_pixel / (shape.P * shape.Q);  // filter

  float sum = 0.0f;
  for (int c = 0; c < shape.C; ++c) {
    const float* input_channel =  // [H, W]
        input + ((size_t)n * shape.C + c) * shape.H * shape.W;
    const float* filter =  // [R, S]
        filters + ((size_t)k * shape.C + c) * shape.R * shape.S;
    float channel_sum = 0.0f;
    for (int r = 0; r < shape.R; ++r)
      for (int s = 0; s < shape.S; ++s)
        channel_sum += input_pixel(input_channel, shape, p, q, r, s) *
                       filter[r * shape.S + s];
    sum += channel_sum;
  }
  output[(size_t)n * shape.K * shape.P * shape.Q + output_pixel] = sum;
}
