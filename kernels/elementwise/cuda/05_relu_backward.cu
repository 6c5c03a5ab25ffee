// The gradient of ReLU: dx = dy where x was positive, else 0.
//
// Idea: one thread per element. What is kept says where x was positive:
// y itself, or a byte per element. x is not needed.
// What limits it: HBM. 12 bytes are moved per element from y, 9 from a
// mask of bytes.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK and KEEP (0: y,
// 1: bytes) are defines.

#include "../../cuda/float4.cuh"
#include "mask.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) relu_backward(
    const float* __restrict__ dy,   // [count]
    const Kept* __restrict__ kept,  // [count], y or mask
    float* __restrict__ dx,         // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  float gradient = dy[i];
  dx[i] = kept[i] > 0 ? gradient : 0.0f;
}
