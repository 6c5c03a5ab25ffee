// GELU: y = x times the share of normal numbers below x.
//
// Idea: one thread per element. Numbers far below 0 become 0, numbers
// far above 0 stay. Between them the curve is smooth. One y can come
// from two x, so the backward pass needs x itself.
// What limits it: HBM. 8 bytes are moved, for one erf or one tanh.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK and FORM (0: erf,
// 1: tanh) are defines.

#include "gelu.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) gelu(
    const float* __restrict__ x,  // [count]
    float* __restrict__ y,        // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  y[i] = x[i] * share_below(x[i]);
}
