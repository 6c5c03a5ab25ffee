// Bias and ReLU after a kernel that knows of neither.
//
// Idea: one thread per output pixel reads it, adds the bias of its
// map, and writes it back, 0 in place of what is negative. What
// limits it: memory alone. It moves the whole output through HBM
// twice for one addition; a kernel that does this to its sums while
// they are still in registers gets it for nothing.
//
// Launch: grid (ceil(K*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"
#include "layer.cuh"

extern "C" __global__ void bias_relu(
    const float* __restrict__ b,  // [K], read if there is a bias
    float* __restrict__ y,        // [N, K, P, Q]
    Conv s, Layer layer) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  int maps = s.K * s.P * s.Q;
  if (i >= maps) return;
  y += (size_t)n * maps + i;
  *y = finished(*y, b, i / (s.P * s.Q), layer);
}
