// Batch norm folded into the convolution before it.
//
// Idea: at inference batch norm is v * gain + shift, with a gain and a
// shift for each map. A convolution is linear. So its weights are
// multiplied by the gain, and its bias includes the shift. This is
// done once, before all images. Then there is no batch norm any more.
// What limits it: HBM. Only the weights are read and written.
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
  int k = i / taps;  // filter
  float gain = gamma[k] * rsqrtf(var[k] + eps);
  w_folded[i] = w[i] * gain;
  if (i == k * taps)  // one thread of each filter
    b_folded[k] = ((bias ? b[k] : 0.0f) - mean[k]) * gain + beta[k];
}
