// Winograd in steps, the input: V = B^T d B for every tile.
//
// Idea: one thread takes the T x T pixels of one tile in one channel
// and writes T*T floats, each to a matrix of its own: neighbouring
// threads own neighbouring tiles, so a warp's stores fall side by
// side. No position needs another's matrix: what follows is T*T
// products at once.
// What limits it: memory. Input tiles overlap, so V is T*T / (M*M)
// times the input: 4 times for M = 2, 2.25 for 4, 1.8 for 6.
//
// Launch: grid ceil(C * fours(tiles) / BLOCK), block BLOCK, a define
// like M.

#include "winograd.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) winograd_input(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ V,        // [T*T, C, fours(tiles)]
    Conv s) {
  Tiles tiles = tiles_of(s);
  int row = fours(tiles.all);
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= s.C * row) return;
  int tile = i % row, c = i / row;

  float d[T][T], v[T][T];
  load_tile(x, s, place(tiles, tile), c, tile < tiles.all, d);
  both_sides(BT, d, v);
#pragma unroll
  for (int p = 0; p < T * T; ++p)
    V[(size_t)p * s.C * row + i] = v[p / T][p % T];
}
