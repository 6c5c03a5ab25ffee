// What the Winograd kernels share. The output is divided into tiles of
// M x M pixels. Each is computed from an input tile of T x T pixels,
// T = M + 2. Neighbouring input tiles overlap by 2. With a filter g
// and an input tile d,
//
//   Y = A^T [ (G g G^T) * (B^T d B) ] A,
//
// where * multiplies element by element: T*T multiplications for M*M
// outputs. The products of all channels are added before A is applied.
// Each of the T*T positions in a tile is thus a matrix product of its
// own. M is a define.

#include "conv.cuh"
#include "winograd_matrices.cuh"

constexpr int T = M + 2;

// Y = X d X^T. X is a constant for the compiler: its zeros, and
// products with 1 and -1, need no multiplication.
template <int ROWS, int COLS>
__device__ inline void transform_2d(const float (&X)[ROWS][COLS],
                                    const float (&d)[COLS][COLS],
                                    float (&Y)[ROWS][ROWS]) {
  float Xd[ROWS][COLS];  // X d
#pragma unroll
  for (int j = 0; j < COLS; ++j)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      bool first = true;
#pragma unroll
      for (int k = 0; k < COLS; ++k)
        if (X[i][k] != 0) {
          float term = X[i][k] * d[k][j];
          Xd[i][j] = first ? term : Xd[i][j] + term;
          first = false;
        }
    }
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < ROWS; ++j) {
      bool first = true;
#pragma unroll
      for (int k = 0; k < COLS; ++k)
        if (X[j][k] != 0) {
          float term = Xd[i][k] * X[j][k];
          Y[i][j] = first ? term : Y[i][j] + term;
          first = false;
        }
    }
}

// Rounds a row length up to a multiple of 4, so that each row begins
// on 16 bytes. The columns that this adds hold zeros.
__device__ inline int round_up_4(int extent) {
  return (extent + 3) / 4 * 4;
}

// The output tiles of a launch. They are numbered along a row, then
// down the image, then from image to image.
struct Tiles {
  int down, across, count;
};
__device__ inline Tiles tiles_of(const Conv& shape) {
  int down = (shape.P + M - 1) / M, across = (shape.Q + M - 1) / M;
  return {down, across, shape.N * down * across};
}

// The image and the first output pixel of a tile.
struct TileCorner {
  int n, p, q;
};
__device__ inline TileCorner tile_corner(const Tiles& tiles,
                                             int tile) {
  int tile_row = tile / tiles.across;  // counted through all images
  return {tile_row / tiles.down, tile_row % tiles.down * M,
          tile % tiles.across * M};
}

// Loads the T x T input pixels of channel c under a tile. Pixels
// outside the input are zero; all are zero if the tile does not exist.
__device__ inline void load_tile(const float* input,  // x [N, C, H, W]
                                 const Conv& shape,
                                 const TileCorner& corner, int c,
                                 bool exists, float (&d)[T][T]) {
  const float* pixels =
      input + ((size_t)corner.n * shape.C + c) * shape.H * shape.W;
  int first_h = corner.p - shape.pad_h;
  int first_w = corner.q - shape.pad_w;
  pixels += (ptrdiff_t)first_h * shape.W + first_w;
#pragma unroll
  for (int i = 0; i < T; ++i)
#pragma unroll
    for (int j = 0; j < T; ++j) {
      bool inside =
          exists && 0 <= first_h + i && first_h + i < shape.H &&
          0 <= first_w + j && first_w + j < shape.W;
      d[i][j] = inside ? pixels[(ptrdiff_t)i * shape.W + j] : 0.0f;
    }
}

// Stores the pixels of a tile that are inside the output channel
// [P, Q], WIDTH floats at a time. WIDTH divides Q and M, so that each
// store is aligned.
template <int WIDTH>
__device__ inline void store_rows(float* pixels,  // from the tile on
                                  const Conv& shape,
                                  const TileCorner& corner,
                                  const float (&tile)[M][M]) {
  struct alignas(4 * WIDTH) Vector {
    float element[WIDTH];
  };
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < M; j += WIDTH)
      if (corner.p + i < shape.P && corner.q + j < shape.Q) {
        Vector vector;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          vector.element[e] = tile[i][j + e];
        *(Vector*)(pixels + (size_t)i * shape.Q + j) = vector;
      }
}
__device__ inline void store_tile(float* output,  // y [N, K, P, Q]
                                  const Conv& shape,
                                  const TileCorner& corner, int k,
                                  const float (&tile)[M][M]) {
  float* pixels =
      output + ((size_t)corner.n * shape.K + k) * shape.P * shape.Q;
  pixels += (size_t)corner.p * shape.Q + corner.q;
  if (M % 4 == 0 && shape.Q % 4 == 0)
    store_rows<M % 4 ? 2 : 4>(pixels, shape, corner, tile);
  else if (shape.Q % 2 == 0)
    store_rows<2>(pixels, shape, corner, tile);
  else
    store_rows<1>(pixels, shape, corner, tile);
}
