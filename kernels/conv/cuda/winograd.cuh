// What the Winograd kernels share. The output is cut into tiles of
// M x M; each comes from an input tile of T x T, T = M + 2, and
// neighbours overlap by 2. With g a filter and d an input tile,
//
//   Y = A^T [ (G g G^T) * (B^T d B) ] A,
//
// where * multiplies element by element: T*T multiplications for
// M*M outputs. Summed over channels before A is applied, each of the
// T*T positions is a matrix product of its own. M is a define.

#include "conv.cuh"
#include "winograd_matrices.cuh"

constexpr int T = M + 2;

// X d X^T. X is known when compiling: its zeros, and its products
// with 1 and -1, leave no instruction.
template <int ROWS, int COLS>
__device__ inline void both_sides(const float (&X)[ROWS][COLS],
                                  const float (&d)[COLS][COLS],
                                  float (&y)[ROWS][ROWS]) {
  float half[ROWS][COLS];  // X d
#pragma unroll
  for (int j = 0; j < COLS; ++j)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      bool first = true;
#pragma unroll
      for (int k = 0; k < COLS; ++k)
        if (X[i][k] != 0) {
          float term = X[i][k] * d[k][j];
          half[i][j] = first ? term : half[i][j] + term;
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
          float term = half[i][k] * X[j][k];
          y[i][j] = first ? term : y[i][j] + term;
          first = false;
        }
    }
}

// Rows of 16-byte accesses: an extent rounded up to whole fours. The
// columns that this adds hold zeros.
__device__ inline int fours(int extent) {
  return (extent + 3) / 4 * 4;
}

// All output tiles of a launch, numbered along a row, then down the
// map, then from image to image.
struct Tiles {
  int down, across, all;
};
__device__ inline Tiles tiles_of(const Conv& s) {
  int down = (s.P + M - 1) / M, across = (s.Q + M - 1) / M;
  return {down, across, s.N * down * across};
}

// Where a tile stands: its image and first output pixel.
struct Place {
  int n, p, q;
};
__device__ inline Place place(const Tiles& tiles, int tile) {
  int row = tile / tiles.across;
  return {row / tiles.down, row % tiles.down * M,
          tile % tiles.across * M};
}

// d = the T x T input pixels of map c under the tile, zeros in the
// padding, beyond the input, and everywhere if not `real`.
__device__ inline void load_tile(const float* x,  // [N, C, H, W]
                                 const Conv& s, const Place& at,
                                 int c, bool real,
                                 float (&d)[T][T]) {
  const float* map = x + ((size_t)at.n * s.C + c) * s.H * s.W;
  int h0 = at.p - s.pad_h, w0 = at.q - s.pad_w;
  map += (ptrdiff_t)h0 * s.W + w0;
#pragma unroll
  for (int i = 0; i < T; ++i)
#pragma unroll
    for (int j = 0; j < T; ++j) {
      bool inside = real && 0 <= h0 + i && h0 + i < s.H &&
                    0 <= w0 + j && w0 + j < s.W;
      d[i][j] = inside ? map[(ptrdiff_t)i * s.W + j] : 0.0f;
    }
}

// Stores what of a tile lies in its map of P x Q, WIDTH floats at
// once: rows and tiles begin on as many if WIDTH divides Q and M.
template <int WIDTH>
__device__ inline void store_rows(float* map,  // from the tile on
                                  const Conv& s, const Place& at,
                                  const float (&y)[M][M]) {
  struct alignas(4 * WIDTH) Run {
    float at[WIDTH];
  };
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < M; j += WIDTH)
      if (at.p + i < s.P && at.q + j < s.Q) {
        Run run;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) run.at[k] = y[i][j + k];
        *(Run*)(map + (size_t)i * s.Q + j) = run;
      }
}
__device__ inline void store_tile(float* y,  // [N, K, P, Q]
                                  const Conv& s, const Place& at,
                                  int k, const float (&out)[M][M]) {
  float* map = y + ((size_t)at.n * s.K + k) * s.P * s.Q;
  map += (size_t)at.p * s.Q + at.q;
  if (M % 4 == 0 && s.Q % 4 == 0)
    store_rows<M % 4 ? 2 : 4>(map, s, at, out);
  else if (s.Q % 2 == 0)
    store_rows<2>(map, s, at, out);
  else
    store_rows<1>(map, s, at, out);
}
