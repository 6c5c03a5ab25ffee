// A step of SGD with momentum for all tensors in one launch.
//
// Idea: a table cuts every tensor into chunks. A block reads its line of
// the table, (first element, elements), and updates that chunk. Small
// and large tensors share a launch. PyTorch calls this multi-tensor
// apply.
// What limits it: HBM, 20 bytes per element, and the instructions of
// loads of 4 bytes.
//
// Launch: grid chunks, block BLOCK.

#include "sgd.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) sgd_chunks(
    float* __restrict__ w,           // [extent], all weights
    const float* __restrict__ g,     // [extent], their gradients
    float* __restrict__ v,           // [extent], running sums
    const int2* __restrict__ table,  // [chunks]: first, elements
    Sgd by) {
  int2 chunk = table[blockIdx.x];
  for (int i = threadIdx.x; i < chunk.y; i += BLOCK) {
    int at = chunk.x + i;
    update(w[at], g[at], v[at], by);
  }
}
