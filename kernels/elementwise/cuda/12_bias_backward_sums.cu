// The gradient of a bias without atomics: two launches of this kernel.
//
// Idea: the first launch stores one sum per channel and part of the
// tensor. These sums are a matrix [parts, C], again a tensor with
// channels. The second launch adds it up with one part. Every addition
// has a fixed place, so db is the same to the last bit in every run.
// What limits it: HBM; at small sizes the second launch.
//
// Launch: grid (ceil(C / columns), parts), block BLOCK. BLOCK, PER are
// defines.

#include "channel_sums.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bias_backward_sums(
    const float* __restrict__ dy,  // [outer, C, inner]
    float* __restrict__ sums,      // [parts, C]
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
  if (threadIdx.x < columns && active)
    sums[blockIdx.y * shape.C + c] = partial[column];
}
