// Rows of tokens to heads with 16-byte loads, several at the same time.
//
// Idea: the d numbers of a head are neighbours in both orders. If d is
// a multiple of 4, they are whole float4, which move as one number
// (WIDTH 4, else 1). The indices then count float4. A thread loads PER
// of them before it stores the first, so that more bytes are on their
// way.
// What limits it: HBM alone.
//
// Launch: grid ceil(count / (BLOCK * PER)), block BLOCK; count and the
// d of shape in units of WIDTH floats. BLOCK, PER, PARTS (1 or 3),
// WIDTH are defines.

#include "heads.cuh"

#if WIDTH == 4
typedef float4 Unit;
#else
typedef float Unit;
#endif

extern "C" __global__ void __launch_bounds__(BLOCK) split_float4(
    const Unit* __restrict__ x,  // [N, T, PARTS, h, d]
    Unit* __restrict__ Q,        // [N, h, T, d]
#if PARTS == 3
    Unit* __restrict__ K,  // [N, h, T, d]
    Unit* __restrict__ V,  // [N, h, T, d]
#endif
    Heads shape, int count) {
  int first = blockIdx.x * BLOCK * PER + threadIdx.x;
  Unit v[PER];
  for (int k = 0; k < PER; ++k)
    if (first + k * BLOCK < count) v[k] = x[first + k * BLOCK];
  for (int k = 0; k < PER; ++k) {
    int i = first + k * BLOCK;
    if (i >= count) continue;
    Place place = in_heads(i, shape);
#if PARTS == 3
    Unit* y = place.part == 0 ? Q : place.part == 1 ? K : V;
#else
    Unit* y = Q;
#endif
    y[place.offset] = v[k];
  }
}
