// The gradient of a bias: db[c] = the sum of dy over channel c.
//
// Idea: one thread per element, one atomic addition each. It is the
// forward pass read backwards: where b[c] was read, db[c] is added to.
// What limits it: the additions to one address come one after another,
// and there are only C addresses. Their order changes from run to run,
// so the last digits of db do too.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. db must be 0 before.

#include "channels.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bias_backward_atomics(
    const float* __restrict__ dy,  // [outer, C, inner]
    float* __restrict__ db,        // [C]
    Channels shape, int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int c = channel_of(i, shape);
  atomicAdd(&db[c], dy[i]);
}
