// Heads to rows of tokens with 16-byte loads, several at the same time.
//
// Idea: as split_float4, in the other direction. A thread loads PER
// units from their places in heads before it stores the first. The
// stores of a warp are contiguous.
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

extern "C" __global__ void __launch_bounds__(BLOCK) merge_float4(
    const Unit* __restrict__ Q,  // [N, h, T, d]
#if PARTS == 3
    const Unit* __restrict__ K,  // [N, h, T, d]
    const Unit* __restrict__ V,  // [N, h, T, d]
#endif
    Unit* __restrict__ y,  // [N, T, PARTS, h, d]
    Heads shape, int count) {
  int first = blockIdx.x * BLOCK * PER + threadIdx.x;
  Unit v[PER];
  for (int k = 0; k < PER; ++k) {
    int i = first + k * BLOCK;
    if (i >= count) continue;
    Place place = in_heads(i, shape);
#if PARTS == 3
    const Unit* x = place.part == 0 ? Q : place.part == 1 ? K : V;
#else
    const Unit* x = Q;
#endif
    v[k] = x[place.offset];
  }
  for (int k = 0; k < PER; ++k)
    if (first + k * BLOCK < count) y[first + k * BLOCK] = v[k];
}
