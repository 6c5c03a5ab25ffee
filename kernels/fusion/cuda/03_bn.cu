// Batch norm alone, as at inference: y = (x - mean) / sqrt(var + eps)
// * gamma + beta, one block of a chain, one launch.
//
// Idea: mean, variance, gamma and beta are numbers of a map, known
// before. A thread takes four values that lie side by side, as one
// float4. What limits it: HBM. 8 bytes move for three operations.
//
// Launch: grid ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK: a
// thread has FOURS turns.

#include "fusion.cuh"

extern "C" __global__ void bn(
    const float* __restrict__ x,      // [N, C, H, W]
    const float* __restrict__ gamma,  // [C]
    const float* __restrict__ beta,   // [C]
    const float* __restrict__ mean,   // [C]
    const float* __restrict__ var,    // [C]
    float* __restrict__ y,            // [N, C, H, W]
    Maps s, float eps) {
  int n = values(s), step = 4 * gridDim.x * blockDim.x;
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (; i < n; i += step) {
    float v[4], middle, gain, shift;
    load(v, x, i, n);
    for (int k = 0; k < 4; ++k) {
      if (k == 0 || s.P * s.Q % 4 != 0) {  // else all are of one map
        int c = map_of(i + k, s);
        middle = mean[c];
        gain = gamma[c] * rsqrtf(var[c] + eps);
        shift = beta[c];
      }
      v[k] = (v[k] - middle) * gain + shift;
    }
    store(y, v, i, n);
  }
}
