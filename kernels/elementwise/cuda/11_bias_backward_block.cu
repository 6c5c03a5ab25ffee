// The gradient of a bias: a block adds first, then one atomic addition.
//
// Idea: a block sums its part of a channel in registers and in shared
// memory (channel_sums.cuh). Only its result is added to db[c] by an
// atomic addition: one per block and channel, not one per element.
// What limits it: HBM. The order of the atomic additions still changes
// from run to run.
//
// Launch: grid (ceil(C / columns), parts), block BLOCK. BLOCK, PER are
// defines. db must be 0 before.

#include "channel_sums.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bias_backward_block(
    const float* __restrict__ dy,  // [outer, C, inner]
    float* __restrict__ db,        // [C]
    Channels shape, int columns, int count, int part) {
  __shared__ float partial[BLOCK];
  int rows = BLOCK / columns, column = threadIdx.x % columns;
  int c = blockIdx.x * columns + column;
  int first = blockIdx.y * part, last = min(first + part, count);
  bool active = threadIdx.x < rows * columns && c < shape.C;

  float sum = 0.0f;
  int j = first + threadIdx.x / columns;
  if (active) sum = sum_of_thread(dy, shape, c, j, rows, last);
  sum_of_block(partial, sum, columns, rows);
  if (threadIdx.x < columns && active) atomicAdd(&db[c], partial[column]);
}
