// Winograd in steps, the input: V = B^T d B for every tile.
//
// Idea: one thread transforms the T x T pixels of one tile in one
// channel. It writes T*T floats, one to each of T*T matrices.
// Neighbouring threads have neighbouring tiles, so the stores of a warp
// are contiguous. The next step is T*T independent matrix products.
// What limits it: memory traffic. Input tiles overlap, so V is
// T*T / (M*M) times the input: 4 times for M = 2, 2.25 for 4, 1.8
// for 6.
//
// Launch: grid ceil(C * round_up_4(tiles) / BLOCK), block BLOCK, a define
// like M.

#include "winograd.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) winograd_input(
    const float* __restrict__ input,  // x [N, C, H, W]
    float* __restrict__ V,            // [T*T, C, round_up_4(tiles)]
    Conv shape) {
  Tiles tiles = tiles_of(shape);
  int row_length = round_up_4(tiles.count);  // of V
  int element = blockIdx.x * BLOCK + threadIdx.x;
  if (element >= shape.C * row_length) return;
  int tile = element % row_length, c = element / row_length;

  float d[T][T], v[T][T];
  load_tile(input, shape, tile_corner(tiles, tile), c,
            tile < tiles.count, d);
  transform_2d(BT, d, v);
#pragma unroll
  for (int position = 0; position < T * T; ++position)
    V[(size_t)position * shape.C * row_length + element] =
        v[position / T][position % T];
}
