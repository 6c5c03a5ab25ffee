// Merges the parts of a row of attention: each has its own maximum m,
// sum l of exponentials and weighted sum o of values.
//
// Idea: a part's sums were made with the part's maximum. Multiplied by
// exp(m - largest m) they are those with the largest maximum, and can
// be added. This is the correction of flash attention, applied once
// for each part, in any order.
// What limits it: its launch. The parts are few bytes beside K and V.
//
// Launch: grid (B*H*N), block DP. BYTES, BF16 and DP are defines. DP is
// a multiple of 32, d or more.

#include "decode.cuh"

extern "C" __global__ void __launch_bounds__(DP) decode_merge(
    const float* __restrict__ part_m,  // [B*H*N, parts]
    const float* __restrict__ part_l,  // [B*H*N, parts]
    const float* __restrict__ part_o,  // [B*H*N, parts, d]
    Element* __restrict__ O,           // [B*H*N, d]
    int parts, int d) {
  size_t row = blockIdx.x;
  int dim = threadIdx.x;
  part_m += row * parts, part_l += row * parts;
  part_o += row * parts * d;
  if (dim >= d) return;

  float m = -INFINITE;
  for (int part = 0; part < parts; ++part) m = fmaxf(m, part_m[part]);
  // If no part has a visible key, any finite base gives zeros.
  float base = m == -INFINITE ? 0.0f : m;
  float l = 0, o = 0;
#pragma unroll 4
  for (int part = 0; part < parts; ++part) {
    float rescale = exp2_(part_m[part] - base);
    l += rescale * part_l[part];
    o += rescale * part_o[(size_t)part * d + dim];
  }
  // A query that sees no key has l = 0 and the result 0.
  O[row * d + dim] = rounded(l == 0 ? 0.0f : o / l);
}
