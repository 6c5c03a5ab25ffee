// Winograd for the gradient of the filters, first step for dy:
// U = A dy A^T for every tile of M x M output pixels.
//
// Idea: the forward pass ends with Y = A^T z A. Its gradient goes back
// through the same matrix: dz = A dY A^T, T*T numbers for M*M. One
// thread has one tile of one filter. Neighbouring threads have
// neighbouring tiles, so a warp's stores are contiguous.
// What limits it: memory traffic. U is T*T / (M*M) times dy: 4 times
// for M = 2, 2.25 for 4, 1.8 for 6.
//
// Launch: grid ceil(K * round_up_4(tiles) / BLOCK), block BLOCK, a define
// like M.

#include "winograd_back.cuh"

extern "C" __global__ void
__launch_bounds__(BLOCK) dweight_winograd_gradient(
    const float* __restrict__ gradient,  // dy [N, K, P, Q]
    float* __restrict__ U,               // [T*T, K, round_up_4(tiles)]
    Conv shape) {
  Tiles tiles = tiles_of(shape);
  int row_length = round_up_4(tiles.count);  // of U
  int element = blockIdx.x * BLOCK + threadIdx.x;
  if (element >= shape.K * row_length) return;
  int tile = element % row_length, k = element / row_length;
  TileCorner corner = tile_corner(tiles, tile);
  const float* pixels =
      gradient + ((size_t)corner.n * shape.K + k) * shape.P * shape.Q;

  float d[M][M], u[T][T];
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < M; ++j) {
      int p = corner.p + i, q = corner.q + j;
      bool inside = tile < tiles.count && p < shape.P && q < shape.Q;
      d[i][j] = inside ? pixels[(size_t)p * shape.Q + q] : 0.0f;
    }
  transform_back_2d(AT, d, u);
#pragma unroll
  for (int position = 0; position < T * T; ++position)
    U[(size_t)position * shape.K * row_length + element] =
        u[position / T][position % T];
}
