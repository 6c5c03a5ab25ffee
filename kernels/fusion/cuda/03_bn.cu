// Batch norm alone, as at inference: y = (x - mean) / sqrt(var + eps)
// * gamma + beta, one block of a chain, one launch.
//
// Idea: mean, variance, gamma and beta are known numbers of each map.
// A thread computes four neighbouring values at a time, loaded and
// stored as one float4.
// What limits it: HBM. 8 bytes are moved for three operations.
//
// Launch: grid ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK. A
// thread computes FOURS times four values.

#include "fusion.cuh"

extern "C" __global__ void bn(
    const float* __restrict__ x,      // [N, C, H, W]
    const float* __restrict__ gamma,  // [C]
    const float* __restrict__ beta,   // [C]
    const float* __restrict__ mean,   // [C]
    const float* __restrict__ var,    // [C]
    float* __restrict__ y,            // [N, C, H, W]
    Maps shape, float eps) {
  int count = output_count(shape);
  int stride = 4 * gridDim.x * blockDim.x;
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (; i < count; i += stride) {
    float v[4], map_mean, map_gain, map_beta;
    load(v, x, i, count);
    for (int j = 0; j < 4; ++j) {
      if (j == 0 || shape.P * shape.Q % 4 != 0) {  // else the same map
        int c = map_of(i + j, shape);
        map_mean = mean[c];
        map_gain = gamma[c] * rsqrtf(var[c] + eps);
        map_beta = beta[c];
      }
      v[j] = (v[j] - map_mean) * map_gain + map_beta;
    }
    store(y, v, i, count);
  }
}
