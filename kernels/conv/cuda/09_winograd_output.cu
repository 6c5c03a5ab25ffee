// Winograd in steps, the output: Y = A^T Z A for every tile.
//
// Idea: the inverse of the input step. One thread loads the T*T sums
// of one tile of one filter. A warp loads those of 32 neighbouring
// tiles, which are contiguous. It adds the parts of the product. The
// thread writes M x M pixels, with stores as wide as the row length
// allows.
// What limits it: memory traffic. It reads T*T floats for M*M pixels.
//
// Launch: grid ceil(K * round_up_4(tiles) / BLOCK), block BLOCK, a define
// like M.

#include "winograd.cuh"

extern "C" __global__ void
__launch_bounds__(BLOCK, 512 / BLOCK) winograd_output(
    const float* __restrict__ Z,  // [parts, T*T, K, round_up_4(tiles)]
    float* __restrict__ output,   // y [N, K, P, Q]
    Conv shape, int parts) {
  Tiles tiles = tiles_of(shape);
  int row_length = round_up_4(tiles.count);  // of Z
  int element = blockIdx.x * BLOCK + threadIdx.x;
  int tile = element % row_length, k = element / row_length;
  if (k >= shape.K || tile >= tiles.count) return;

  float z[T][T], out[M][M];
#pragma unroll
  for (int position = 0; position < T * T; ++position)
    z[position / T][position % T] =
        Z[(size_t)position * shape.K * row_length + element];
  for (int part = 1; part < parts; ++part) {
    Z += (size_t)T * T * shape.K * row_length;
#pragma unroll
    for (int position = 0; position < T * T; ++position)
      z[position / T][position % T] +=
          Z[(size_t)position * shape.K * row_length + element];
  }
  transform_2d(AT, z, out);
  store_tile(output, shape, tile_corner(tiles, tile), k, out);
}
