// The gradient of a bias with streaming loads: two launches of this
// kernel, as in 12.
//
// Idea: dy is read once and never again. Loads marked as streaming
// (evict first) say this to the L2: their lines are replaced before all
// others. So lines that an earlier kernel wrote stay in the L2, and
// their write to HBM is not part of this kernel's time.
// What limits it: HBM; at small sizes the second launch.
//
// Launch: grid (ceil(C / columns), parts), block BLOCK. BLOCK, PER are
// defines.

#include "channel_sums.cuh"

// Returns the sum of the calling thread, as sum_of_thread does.
__device__ inline float streaming_sum_of_thread(const float* dy,
                                                const Channels& shape,
                                                int c, int j, int rows,
                                                int last) {
  float sum = 0.0f;
  for (; j < last; j += rows * PER) {
    float v[PER];
    for (int k = 0; k < PER; ++k) {
      int outer = divide(j + rows * k, shape.by_inner);
      int inner = j + rows * k - outer * shape.inner;
      int i = (outer * shape.C + c) * shape.inner + inner;
      v[k] = j + rows * k < last ? __ldcs(dy + i) : 0.0f;
    }
    for (int k = 0; k < PER; ++k) sum += v[k];
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK) bias_backward_streaming(
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
  if (active)
    sum = streaming_sum_of_thread(dy, shape, c, j, rows, last);
  sum_of_block(partial, sum, columns, rows);
  if (threadIdx.x < columns && active)
    sums[blockIdx.y * shape.C + c] = partial[column];
}
