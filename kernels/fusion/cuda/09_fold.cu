// Batch norm folded into the convolution before it.
//
// Idea: at inference batch norm is v * gain + shift with a gain and a
// shift for each map, and a convolution is linear: gain goes into the
// filter's weights, what is left into its bias. Done once, for every
// image that will ever come; then there is no batch norm any more.
// What limits it: HBM, and there is little: the weights in and out.
//
// Launch: grid ceil(K*C*R*R / block), block BLOCK.

extern "C" __global__ void fold(
    const float* __restrict__ w,      // [K, C, R, R]
    const float* __restrict__ b,      // [K], read if there is a bias
    const float* __restrict__ gamma,  // [K]
    const float* __restrict__ beta,   // [K]
    const float* __restrict__ mean,   // [K]
    const float* __restrict__ var,    // [K]
    float* __restrict__ b_folded,     // [K]
    float* __restrict__ w_folded,     // [K, C, R, R]
    int K, int taps,                  // taps of a filter, C*R*R
    int bias, float eps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= K * taps) return;
  int k = i / taps;
  float gain = gamma[k] * rsqrtf(var[k] + eps);
  w_folded[i] = w[i] * gain;
  if (i == k * taps)  // one thread of each filter
    b_folded[k] = ((bias ? b[k] : 0.0f) - mean[k]) * gain + beta[k];
}
