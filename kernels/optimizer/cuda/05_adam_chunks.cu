// A step of Adam for all tensors in one launch.
//
// Idea: a table cuts every tensor into chunks. A block reads its line of
// the table, (first element, elements), and updates that chunk. Small
// and large tensors share a launch.
// What limits it: HBM, 28 bytes per element, and the instructions of
// loads of 4 bytes.
//
// Launch: grid chunks, block BLOCK.

#include "adam.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) adam_chunks(
    float* __restrict__ w,           // [extent], all weights
    const float* __restrict__ g,     // [extent], their gradients
    float* __restrict__ m,           // [extent], averages of gradients
    float* __restrict__ v,           // [extent], averages of squares
    const int2* __restrict__ table,  // [chunks]: first, elements
    Adam by) {
  int2 chunk = table[blockIdx.x];
  for (int i = threadIdx.x; i < chunk.y; i += BLOCK) {
    int at = chunk.x + i;
    update(w[at], g[at], m[at], v[at], by);
  }
}
