// A step of SGD with momentum for one tensor: a launch per tensor.
//
// Idea: one thread per element. A network has many tensors, and most
// biases are shorter than one block. Each of them is a launch of its
// own.
// What limits it: launches. A small tensor takes as long as an empty
// kernel. Large ones are limited by HBM: 20 bytes per element.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "sgd.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) sgd_tensor(
    float* __restrict__ w,        // [extent], all weights
    const float* __restrict__ g,  // [extent], their gradients
    float* __restrict__ v,        // [extent], running sums of gradients
    int first, int count,         // where the tensor begins, its elements
    Sgd by) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int at = first + i;
  update(w[at], g[at], v[at], by);
}
