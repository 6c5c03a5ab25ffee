// Rows of tokens to heads: one thread per number.
//
// Idea: a row of x holds all heads of a token, one after another, and
// with three parts its queries, its keys and its values. Attention
// reads the tokens of one head. So the axes t and head are exchanged.
// The d numbers of a head stay neighbours. A thread loads number i of
// x, divides i into its indices, and stores to the address in heads.
// What limits it: HBM. 8 bytes are moved for each number. A warp moves
// 128 bytes per load, which is little for many divisions.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK, PARTS (1 or 3)
// are defines.

#include "heads.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) split_elements(
    const float* __restrict__ x,  // [N, T, PARTS, h, d]
    float* __restrict__ Q,        // [N, h, T, d]
#if PARTS == 3
    float* __restrict__ K,  // [N, h, T, d]
    float* __restrict__ V,  // [N, h, T, d]
#endif
    Heads shape, int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  Place place = in_heads(i, shape);
#if PARTS == 3
  float* y = place.part == 0 ? Q : place.part == 1 ? K : V;
#else
  float* y = Q;
#endif
  y[place.offset] = x[i];
}
