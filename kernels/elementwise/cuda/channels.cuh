// The channel of an element of a tensor [outer, C, inner]. NCHW has
// outer = N, inner = P*Q. NHWC, and a matrix of rows, has inner = 1.

#include "../../cuda/magic.cuh"

struct Channels {
  int C, inner;
  Magic by_C, by_inner;  // to divide by C and by inner (magic.cuh)
};

// Returns the channel of element i.
__device__ inline int channel_of(int i, const Channels& shape) {
  int plane = divide(i, shape.by_inner);  // outer index * C + channel
  return plane - divide(plane, shape.by_C) * shape.C;
}
