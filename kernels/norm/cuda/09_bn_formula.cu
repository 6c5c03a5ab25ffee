// Batch norm in inference, as it is defined.
//
// Idea: mean and variance are known from training. So each number of y
// depends on one number of x alone: a thread computes one. It loads the
// four numbers of its channel.
// What limits it: six memory accesses a number, of which two move
// useful bytes. Each thread computes a square root and a division.
//
// Launch: grid ceil(total / BLOCK), block BLOCK. BLOCK and NHWC (the
// layout of x and y) are defines.

extern "C" __global__ void __launch_bounds__(BLOCK) bn_formula(
    const float* __restrict__ x,      // [N, C, HW], NHWC: [N, HW, C]
    const float* __restrict__ gamma,  // [C]
    const float* __restrict__ beta,   // [C]
    const float* __restrict__ mean,   // [C]
    const float* __restrict__ var,    // [C]
    float* __restrict__ y,            // as x
    int total, int C, int HW, float eps) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= total) return;
  int channel = NHWC ? i % C : i / HW % C;
  float invstd = 1.0f / sqrtf(var[channel] + eps);
  y[i] = gamma[channel] * (x[i] - mean[channel]) * invstd + beta[channel];
}
