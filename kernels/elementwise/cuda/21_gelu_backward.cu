// The gradient of GELU: dx = dy times the slope of GELU at x.
//
// Idea: one thread per element. The slope is computed again from x: to
// keep it would move as many bytes.
// What limits it: HBM. 12 bytes are moved per element.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK and FORM (0: erf,
// 1: tanh) are defines.

#include "gelu.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) gelu_backward(
    const float* __restrict__ dy,  // [count]
    const float* __restrict__ x,   // [count]
    float* __restrict__ dx,        // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  dx[i] = dy[i] * slope_of(x[i]);
}
