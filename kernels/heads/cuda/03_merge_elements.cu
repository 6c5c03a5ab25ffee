// Heads to rows of tokens: one thread per number.
//
// Idea: the two addresses are those of split_elements. Only the
// direction differs: the number is loaded from its place in heads and
// stored to number i of y. This is also the gradient of the split: each
// number went to one place, so its gradient comes from there.
// What limits it: HBM. 8 bytes are moved for each number. A warp moves
// 128 bytes per load, which is little for many divisions.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK, PARTS (1 or 3)
// are defines.

#include "heads.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) merge_elements(
    const float* __restrict__ Q,  // [N, h, T, d]
#if PARTS == 3
    const float* __restrict__ K,  // [N, h, T, d]
    const float* __restrict__ V,  // [N, h, T, d]
#endif
    float* __restrict__ y,  // [N, T, PARTS, h, d]
    Heads shape, int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  Place place = in_heads(i, shape);
#if PARTS == 3
  const float* x = place.part == 0 ? Q : place.part == 1 ? K : V;
#else
  const float* x = Q;
#endif
  y[i] = x[place.offset];
}
