// A step of Adam for one tensor: a launch per tensor.
//
// Idea: one thread per element. It reads the weight, its gradient and
// two running averages, and writes all but the gradient.
// What limits it: launches if the tensors are small, else HBM: 28 bytes
// per element.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "adam.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) adam_tensor(
    float* __restrict__ w,        // [extent], all weights
    const float* __restrict__ g,  // [extent], their gradients
    float* __restrict__ m,        // [extent], averages of gradients
    float* __restrict__ v,        // [extent], averages of their squares
    int first, int count,         // where the tensor begins, its elements
    Adam by) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int at = first + i;
  update(w[at], g[at], m[at], v[at], by);
}
