// Sums over a channel of a tensor [outer, C, inner], by one block.
//
// A block has `columns` neighbouring channels and a part of the other
// indices: j = outer index * inner + inner index, first <= j < last.
// Thread t has channel t % columns and every (BLOCK / columns)-th j. In
// NCHW columns is 1: the threads read along a plane. In NHWC they read
// along the channels.

#include "channels.cuh"

// Returns the sum of the calling thread. It loads PER elements before
// it adds the first.
__device__ inline float sum_of_thread(const float* dy,
                                      const Channels& shape, int c, int j,
                                      int rows, int last) {
  float sum = 0.0f;
  for (; j < last; j += rows * PER) {
    float v[PER];
    for (int k = 0; k < PER; ++k) {
      int outer = divide(j + rows * k, shape.by_inner);
      int inner = j + rows * k - outer * shape.inner;
      int i = (outer * shape.C + c) * shape.inner + inner;
      v[k] = j + rows * k < last ? dy[i] : 0.0f;
    }
    for (int k = 0; k < PER; ++k) sum += v[k];
  }
  return sum;
}

// Adds the sums of the threads with the same channel, by a tree in
// shared memory. Afterwards partial[t] is the sum of channel t <
// columns.
__device__ inline void sum_of_block(float (&partial)[BLOCK], float sum,
                                    int columns, int rows) {
  int thread = threadIdx.x;
  partial[thread] = sum;
  __syncthreads();
  while (rows > 1) {
    int half = (rows + 1) / 2;
    if (thread < (rows - half) * columns)
      partial[thread] += partial[thread + half * columns];
    __syncthreads();
    rows = half;
  }
}
