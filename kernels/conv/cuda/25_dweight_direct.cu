// Gradient of the filters, direct: one thread per filter tap.
//
// Idea: tap (k, c, r, s) is multiplied by one input pixel for each
// output pixel of filter k. Its gradient is the sum over all images
// and all output pixels: output gradient times that input pixel. This
// is a correlation of the input with the output gradient. Each row of
// an image has its own sum: one sum over a hundred thousand floats
// would lose its last bits.
// What limits it: the number of threads. There are only K*C*R*S taps,
// and each has a long loop whose multiply-adds wait for two loads.
//
// Launch: grid ceil(K * C / groups * R * S / BLOCK), block BLOCK.

#include "backward.cuh"

extern "C" __global__ void dweight_direct(
    const float* __restrict__ input,            // x [N, C, H, W]
    const float* __restrict__ output_gradient,  // dy [N, K, P, Q]
    float* __restrict__ filter_gradient,  // dw [K, C / groups, R, S]
    Conv shape, Layer layer) {
  int filter_tap = blockIdx.x * blockDim.x + threadIdx.x;
  int group_C = shape.C / layer.groups;  // channels of one group
  int filter_area = shape.R * shape.S;
  if (filter_tap >= shape.K * group_C * filter_area) return;
  int s = filter_tap % shape.S;
  int r = filter_tap / shape.S % shape.R;
  int c = filter_tap / filter_area % group_C;   // within the group
  int k = filter_tap / (filter_area * group_C);  // filter
  c += k / (shape.K / layer.groups) * group_C;

  float sum = 0.0f;
  for (int n = 0; n < shape.N; ++n) {
    const float* input_channel =  // [H, W]
        input + ((size_t)n * shape.C + c) * shape.H * shape.W;
    const float* gradient =  // [P, Q]
        output_gradient +
        ((size_t)n * shape.K + k) * shape.P * shape.Q;
    float image_sum = 0.0f;
    for (int p = 0; p < shape.P; ++p) {
      float row_sum = 0.0f;
      for (int q = 0; q < shape.Q; ++q)
        row_sum += input_pixel(input_channel, shape, p, q, r, s) *
                   gradient[(size_t)p * shape.Q + q];
      image_sum += row_sum;
    }
    sum += image_sum;
  }
  filter_gradient[filter_tap] = sum;
}
