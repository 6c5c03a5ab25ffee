// Gradient of the input, direct: one thread per input pixel.
//
// Idea: input pixel (h, w) was multiplied by tap (r, s) for output
// pixel (p, q), where p * stride + r * dilation = h + padding. Its
// gradient is the sum over all these links: output gradient times tap.
// The thread tries each tap. If the division by the stride has a
// remainder, no output used this pixel with this tap. Each tap has its
// own sum over the filters: short sums lose fewer bits.
// What limits it: each multiply-add waits for two loads. With stride 2
// three of four taps are holes, and each of them costs two divisions.
//
// Launch: grid (ceil(C*H*W / BLOCK), N), block BLOCK.

#include "backward.cuh"

extern "C" __global__ void dinput_direct(
    const float* __restrict__ output_gradient,  // dy [N, K, P, Q]
    const float* __restrict__ filters,  // w [K, C / groups, R, S]
    float* __restrict__ input_gradient,         // dx [N, C, H, W]
    Conv shape, Layer layer) {
  int input_pixel = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (input_pixel >= shape.C * shape.H * shape.W) return;
  int w = input_pixel % shape.W;
  int h = input_pixel / shape.W % shape.H;
  int c = input_pixel / (shape.H * shape.W);  // channel

  int group_C = shape.C / layer.groups;  // channels of one group
  int group_K = shape.K / layer.groups;  // filters of one group
  int first_k = c / group_C * group_K;   // of the channel's group
  size_t output_area = (size_t)shape.P * shape.Q;
  size_t filter_stride = (size_t)group_C * shape.R * shape.S;
  const float* gradient =  // [K / groups, P, Q]
      output_gradient + ((size_t)n * shape.K + first_k) * output_area;
  const float* channel_taps =  // [K / groups, R, S], of one channel
      filters + (size_t)first_k * filter_stride +
      (size_t)(c % group_C) * shape.R * shape.S;

  float sum = 0.0f;
  for (int r = 0; r < shape.R; ++r) {
    int p = fed_output(h, shape.pad_h, r * shape.dilation_h, shape.u,
                       shape.P);
    if (p < 0) continue;
    for (int s = 0; s < shape.S; ++s) {
      int q = fed_output(w, shape.pad_w, s * shape.dilation_w, shape.v,
                         shape.Q);
      if (q < 0) continue;
      int tap = filter_row(shape, r) * shape.S + filter_col(shape, s);
      size_t output_pixel = (size_t)p * shape.Q + q;
      float tap_sum = 0.0f;
      for (int k = 0; k < group_K; ++k)
        tap_sum += gradient[k * output_area + output_pixel] *
                   channel_taps[k * filter_stride + tap];
      sum += tap_sum;
    }
  }
  input_gradient[(size_t)n * shape.C * shape.H * shape.W +
                 input_pixel] = sum;
}
