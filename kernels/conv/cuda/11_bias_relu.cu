// Bias and ReLU after a kernel that has neither.
//
// Idea: one thread per output pixel reads the pixel, adds the bias of
// its channel and writes it back. ReLU replaces negative values by 0.
// What limits it: memory traffic. The whole output is read from HBM
// and written back for one addition. A kernel that does this while its
// sums are in registers has no extra traffic.
//
// Launch: grid (ceil(K*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"
#include "layer.cuh"

extern "C" __global__ void bias_relu(
    const float* __restrict__ bias,  // b [K], or unused
    float* __restrict__ output,      // y [N, K, P, Q]
    Conv shape, Layer layer) {
  int output_pixel = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  int image_pixels = shape.K * shape.P * shape.Q;
  if (output_pixel >= image_pixels) return;
  output += (size_t)n * image_pixels + output_pixel;
  *output = apply_bias_relu(
      *output, bias, output_pixel / (shape.P * shape.Q), layer);
}
