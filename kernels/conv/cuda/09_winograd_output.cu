// Winograd in steps, the output: Y = A^T Z A for every tile.
//
// Idea: the inverse of the input's step. One thread gathers the T*T
// sums of one tile of one filter, a warp those of 32 neighbours side
// by side, and writes M x M pixels, as many at once as the row's
// length allows.
// What limits it: memory again; T*T floats in for M*M out.
//
// Launch: grid ceil(K * fours(tiles) / BLOCK), block BLOCK, a define
// like M.

#include "winograd.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) winograd_output(
    const float* __restrict__ Z,  // [T*T, K, fours(tiles)]
    float* __restrict__ y,        // [N, K, P, Q]
    Conv s) {
  Tiles tiles = tiles_of(s);
  int row = fours(tiles.all);
  int i = blockIdx.x * BLOCK + threadIdx.x;
  int tile = i % row, k = i / row;
  if (k >= s.K || tile >= tiles.all) return;

  float z[T][T], out[M][M];
#pragma unroll
  for (int p = 0; p < T * T; ++p)
    z[p / T][p % T] = Z[(size_t)p * s.K * row + i];
  both_sides(AT, z, out);
  store_tile(y, s, place(tiles, tile), k, out);
}
