// The steps of one warp of flash attention on tensor cores: load
// fragments, add scores, update maxima, compute weights, add values.
//
// mma.sync computes bands of 16 rows. Of each 8 columns, lane l has
// four sums: columns 2 (l % 4) and the next of row l / 4, then the same
// columns 8 rows below. `lower` is 0 for the first row, 1 for the
// second.

#include "../../cuda/mma.cuh"
#include "halves.cuh"

constexpr int THREADS = Br / WM * 32;
constexpr int BANDS = WM / 16;  // of 16 rows, for one warp
constexpr int PITCH = DP + 8;  // 8 rows of 16 bytes fill all 32 banks
constexpr int STAGE = 2 * Bc * PITCH;  // elements of tile_k and tile_v
constexpr float FAR = 1 << 20;  // a large score, as a power of 2

// Registers of a lane: sums, and the fragments of Q. HELD: Q stays in
// registers, if there are enough.
constexpr int SUMS = WM * (Bc + DP) / 32, OF_Q = WM * DP / 64;
constexpr bool HELD = SUMS + OF_Q <= 160;
// Blocks that share an SM. Each thread then has 128, 168 or 255
// registers. ROOM is the number of threads.
constexpr int NEED = HELD ? SUMS + OF_Q : SUMS;
constexpr int ROOM = NEED > 112 ? 256 : NEED > 80 ? 384 : 512;
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

typedef float Band[4];               // a lane's sums of 16 x 8
typedef Band Scores[BANDS][Bc / 8];  // of S
typedef Band Values[BANDS][DP / 8];  // of O
typedef unsigned Queries[BANDS][4];  // fragments of Q, 16 columns
typedef float Rows[BANDS][2];        // a number for each row

// Begins to copy ROWS rows of X to a tile. X has `rows_left` rows from
// here on, of d elements each. Elements outside become zero.
template <int ROWS>
__device__ inline void load_tile(Half* tile, const Half* X,
                                 int rows_left, int d) {
  // The threads copy PASS rows at a time.
  constexpr int ACROSS = DP / 8, PASS = THREADS / ACROSS;
  if (d % 8 == 0) {  // each row begins on 16 bytes
    int load_row = threadIdx.x / ACROSS;
    int load_col = threadIdx.x % ACROSS * 8;
    if (THREADS % ACROSS && load_row == PASS) return;
    tile += load_row * PITCH + load_col, X += load_row * d + load_col;
    rows_left = load_col < d ? rows_left - load_row : 0;
#pragma unroll
    for (int row = 0; row < ROWS; row += PASS) {
      if (ROWS % PASS && load_row + row >= ROWS) break;
      copy_async<16>(tile + row * PITCH, X + row * d, row < rows_left);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * DP; i += THREADS) {
      int row = i / DP, col = i % DP;
      bool inside = row < rows_left && col < d;
      tile[row * PITCH + col] = inside ? X[row * d + col] : Half(0);
    }
  }
}

// Loads 16 columns of the warp's queries. `sign` is 0, or the two sign
// bits of a pair if all elements change their sign.
__device__ inline void load_queries(Queries& q, const Half* tile_q,
                                    unsigned sign) {
  int row = threadIdx.x % 16, col = threadIdx.x % 32 / 16 * 8;
#pragma unroll
  for (int i = 0; i < BANDS; ++i) {
    load_matrices(q[i], tile_q + (i * 16 + row) * PITCH + col);
#pragma unroll
    for (int n = 0; n < 4; ++n) q[i][n] ^= sign;
  }
}

// S += Q K^T over 16 columns. mma.sync reads its right factor by
// columns: these are the rows of K.
__device__ inline void add_scores(Scores& s, const Queries& q,
                                  const Half* tile_k) {
  int row = threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8;
  int col = threadIdx.x % 16 / 8 * 8;
#pragma unroll
  for (int n = 0; n < Bc / 16; ++n) {
    unsigned k[4];
    load_matrices(k, tile_k + (n * 16 + row) * PITCH + col);
#pragma unroll
    for (int i = 0; i < BANDS; ++i) {
      multiply_add(s[i][2 * n], q[i], k[0], k[1]);
      multiply_add(s[i][2 * n + 1], q[i], k[2], k[3]);
    }
  }
}

// O += P V over 16 keys.
__device__ inline void add_values(Values& o,
                                  const unsigned (&p)[BANDS][4],
                                  const Half* tile_v) {
  int row = threadIdx.x % 16, col = threadIdx.x % 32 / 16 * 8;
#pragma unroll
  for (int n = 0; n < DP / 16; ++n) {
    unsigned v[4];
    load_transposed(v, tile_v + row * PITCH + n * 16 + col);
#pragma unroll
    for (int i = 0; i < BANDS; ++i) {
      multiply_add(o[i][2 * n], p[i], v[0], v[1]);
      multiply_add(o[i][2 * n + 1], p[i], v[2], v[3]);
    }
  }
}

// Replaces the scores of hidden keys by -infinity. The first row sees
// `keys` keys of the tile; if causal, each later row sees one more.
__device__ inline void hide_keys(Scores& s, int keys, int causal) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int key = n * 8 + lane % 4 * 2 + e % 2;
        int row = i * 16 + e / 2 * 8 + lane / 4;
        if (key >= keys + causal * row) s[i][n][e] = -INFINITE;
      }
}

// Updates the row maxima m of factor * score with those of the tile.
// `base` is what the exponents subtract from now on. Older sums are to
// be multiplied by `rescale`.
__device__ inline void update_maxima(Scores& s, float factor, Rows& m,
                                     Rows& base, Rows& rescale) {
  float farthest = 0;
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      float tile_m = -INFINITE, old_m = m[i][lower];
#pragma unroll
      for (int n = 0; n < Bc / 8; ++n)
        tile_m = fmaxf(tile_m, fmaxf(s[i][n][2 * lower],
                                     s[i][n][2 * lower + 1]));
      tile_m = fmaxf(tile_m, __shfl_xor_sync(~0u, tile_m, 1));
      tile_m = fmaxf(tile_m, __shfl_xor_sync(~0u, tile_m, 2));
      m[i][lower] = fmaxf(old_m, tile_m * factor);
      // If all scores so far are -infinity, any finite base gives
      // zeros.
      base[i][lower] = m[i][lower] == -INFINITE ? 0.0f : m[i][lower];
      rescale[i][lower] = exp2_(old_m - base[i][lower]);
      farthest = fmaxf(farthest, fabsf(base[i][lower]));
    }
  if (farthest < FAR) return;
  // The rounding error of such a large maximum exceeds the tolerance of
  // an exponent. Each product is rounded, then the maximum subtracted.
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[i][n][e] = (__fmul_rn(s[i][n][e], factor) - base[i][e / 2]) *
                     (1 / factor);
#pragma unroll
  for (int i = 0; i < BANDS; ++i) base[i][0] = base[i][1] = 0;
}

// Computes P of 16 keys as a left factor of mma.sync, from the scores
// from column n * 8 on; n is even. Adds the weights to l.
__device__ inline void compute_weights(unsigned (&p)[BANDS][4],
                                       const Scores& s, int n,
                                       float factor, const Rows& base,
                                       Rows& l) {
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      int lower = e % 2;
      const float* scores = &s[i][n + e / 2][2 * lower];  // two
      float a = exp2_(fmaf(scores[0], factor, -base[i][lower]));
      float b = exp2_(fmaf(scores[1], factor, -base[i][lower]));
      l[i][lower] += a + b;
      p[i][e] = pair(a, b);
    }
}

// Multiplies each row of sums by its factor.
template <int COLS>
__device__ inline void scale_rows(Band (&sums)[BANDS][COLS],
                                  const Rows& factors) {
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int n = 0; n < COLS; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][n][e] *= factors[i][e / 2];
}

// Stores the lane's part of one row of O, divided by l. The row has d
// elements.
__device__ inline void store_row(Half* O_row, const Band (&o)[DP / 8],
                                 int lower, float l, int d) {
  int lane_col = threadIdx.x % 4 * 2;
  float inverse = 1 / l;
#pragma unroll
  for (int n = 0; n < DP / 8; ++n) {
    int col = n * 8 + lane_col;
    unsigned both = pair(o[n][2 * lower] * inverse,
                         o[n][2 * lower + 1] * inverse);
    if (col >= d) return;
    if (d % 2 == 0) {  // rows begin on 4 bytes
      *(unsigned*)&O_row[col] = both;
    } else {
      O_row[col] = both;
      if (col + 1 < d) O_row[col + 1] = both >> 16;
    }
  }
}
