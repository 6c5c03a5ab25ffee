// The gradients of batch norm for NHWC: the first sums.
//
// Idea: a thread owns WIDTH channels and goes down the pixels of its
// part, TY pixels at a time, as 06 does. A row of TX threads loads
// contiguous floats of dy and x. A tree over the TY threads adds their
// sums. The block stores one number a channel for each sum.
// What limits it: HBM. dy and x are read once here, and once by 16.
//
// Launch: grid (ceil(C / (TX * WIDTH)), parts), block (TX, TY), TY a
// power of two. TX, TY and WIDTH are defines.

#include "vector.cuh"

constexpr int LOADS = 4;

extern "C" __global__ void __launch_bounds__(TX* TY)
    bn_backward_partial_nhwc(
        const float* __restrict__ dy,      // [pixels, C]
        const float* __restrict__ x,       // [pixels, C]
        const float* __restrict__ mean,    // [C]
        const float* __restrict__ invstd,  // [C]
        float* __restrict__ partial_gamma,  // [parts, C]
        float* __restrict__ partial_beta,   // [parts, C]
        int pixels, int per_part, int C) {
  __shared__ float betas[TY][TX * WIDTH], gammas[TY][TX * WIDTH];
  int part = blockIdx.y, ty = threadIdx.y;
  int channel = (blockIdx.x * TX + threadIdx.x) * WIDTH;
  int begin = part * per_part, end = min(begin + per_part, pixels);
  bool inside = channel < C;

  float m[WIDTH] = {}, s[WIDTH] = {};
  if (inside) load(m, mean + channel), load(s, invstd + channel);
  float sum_beta[WIDTH] = {}, sum_gamma[WIDTH] = {};
  for (int first = begin + ty; first < end; first += LOADS * TY) {
    float dys[LOADS][WIDTH], xs[LOADS][WIDTH];
    for (int k = 0; k < LOADS; ++k) {
      size_t at = (size_t)(first + k * TY) * C + channel;
      if (first + k * TY < end && inside)
        load(dys[k], dy + at), load(xs[k], x + at);
      else
        clear(dys[k]), clear(xs[k]);
    }
    for (int k = 0; k < LOADS; ++k)
      for (int w = 0; w < WIDTH; ++w) {
        sum_beta[w] += dys[k][w];
        sum_gamma[w] += dys[k][w] * ((xs[k][w] - m[w]) * s[w]);
      }
  }
  float* beta = &betas[ty][threadIdx.x * WIDTH];
  float* gamma = &gammas[ty][threadIdx.x * WIDTH];
  for (int w = 0; w < WIDTH; ++w)
    beta[w] = sum_beta[w], gamma[w] = sum_gamma[w];
  for (int stride = TY / 2; stride; stride /= 2) {
    __syncthreads();
    if (ty < stride)
      for (int w = 0; w < WIDTH; ++w) {
        beta[w] += beta[stride * TX * WIDTH + w];
        gamma[w] += gamma[stride * TX * WIDTH + w];
      }
  }
  if (ty == 0 && inside)
    for (int w = 0; w < WIDTH; ++w) {
      size_t at = (size_t)part * C + channel + w;
      partial_gamma[at] = gamma[w], partial_beta[at] = beta[w];
    }
}
