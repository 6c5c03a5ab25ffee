// What a warp of flash attention on tensor cores does with a tile:
// fragments in, scores, maxima, exponents, and the values' sums.
//
// In a band of 16 rows, as mma has them, lane l holds of each 8
// columns four sums: columns 2 (l % 4) and the next of row l / 4,
// then the same of the row 8 below. h says which of the two rows.

#include "../gemm/mma.cuh"
#include "halves.cuh"

constexpr int THREADS = Br / WM * 32;
constexpr int BANDS = WM / 16;
constexpr int PITCH = DP + 8;  // a piece of 8 rows: all 32 banks
constexpr int STAGE = 2 * Bc * PITCH;  // halves: Ks and Vs
constexpr float FAR = 1 << 20;  // of a score, in powers of 2

// Registers of a lane: sums, and fragments of Q if there is room.
constexpr int SUMS = WM * (Bc + DP) / 32, OF_Q = WM * DP / 64;
constexpr bool HELD = SUMS + OF_Q <= 160;
// Blocks that must fit an SM together: as many as leave each thread
// 128, 168 or 255 registers.
constexpr int NEED = HELD ? SUMS + OF_Q : SUMS;
constexpr int ROOM = NEED > 112 ? 256 : NEED > 80 ? 384 : 512;
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

typedef float Band[4];               // a lane's sums of 16 x 8
typedef Band Scores[BANDS][Bc / 8];  // of S
typedef Band Values[BANDS][DP / 8];  // of O
typedef unsigned Queries[BANDS][4];  // of Q, 16 columns
typedef float Rows[BANDS][2];        // a number of each row

// Begins to copy ROWS rows of X, of which `rows` are left and each
// has d halves, to Xs; zeros stand beyond.
template <int ROWS>
__device__ inline void fetch(Half* Xs, const Half* X, int rows,
                             int d) {
  constexpr int ACROSS = DP / 8, PASS = THREADS / ACROSS;  // rows
  if (d % 8 == 0) {  // each row begins on 16 bytes
    int row = threadIdx.x / ACROSS, col = threadIdx.x % ACROSS * 8;
    if (THREADS % ACROSS && row == PASS) return;
    Xs += row * PITCH + col, X += row * d + col;
    rows = col < d ? rows - row : 0;
#pragma unroll
    for (int r = 0; r < ROWS; r += PASS) {
      if (ROWS % PASS && row + r >= ROWS) break;
      copy_async<16>(Xs + r * PITCH, X + r * d, r < rows);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * DP; i += THREADS) {
      int row = i / DP, col = i % DP;
      bool inside = row < rows && col < d;
      Xs[row * PITCH + col] = inside ? X[row * d + col] : Half(0);
    }
  }
}

// 16 columns of the warp's Q, each element's sign turned if `sign`
// has the sign bits of a pair.
__device__ inline void load_queries(Queries& q, const Half* Qs,
                                    unsigned sign) {
  int r = threadIdx.x % 16, c = threadIdx.x % 32 / 16 * 8;
#pragma unroll
  for (int i = 0; i < BANDS; ++i) {
    load_matrices(q[i], Qs + (i * 16 + r) * PITCH + c);
#pragma unroll
    for (int n = 0; n < 4; ++n) q[i][n] ^= sign;
  }
}

// S += Q K^T of 16 columns. K's rows are what mma wants as columns.
__device__ inline void add_scores(Scores& s, const Queries& q,
                                  const Half* Ks) {
  int r = threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8;
  int c = threadIdx.x % 16 / 8 * 8;
#pragma unroll
  for (int n = 0; n < Bc / 16; ++n) {
    unsigned k[4];
    load_matrices(k, Ks + (n * 16 + r) * PITCH + c);
#pragma unroll
    for (int i = 0; i < BANDS; ++i) {
      multiply_add(s[i][2 * n], q[i], k[0], k[1]);
      multiply_add(s[i][2 * n + 1], q[i], k[2], k[3]);
    }
  }
}

// O += P V of 16 keys.
__device__ inline void add_values(Values& o,
                                  const unsigned (&p)[BANDS][4],
                                  const Half* Vs) {
  int r = threadIdx.x % 16, c = threadIdx.x % 32 / 16 * 8;
#pragma unroll
  for (int n = 0; n < DP / 16; ++n) {
    unsigned v[4];
    load_transposed(v, Vs + r * PITCH + n * 16 + c);
#pragma unroll
    for (int i = 0; i < BANDS; ++i) {
      multiply_add(o[i][2 * n], p[i], v[0], v[1]);
      multiply_add(o[i][2 * n + 1], p[i], v[2], v[3]);
    }
  }
}

// Of the tile's keys the first row sees `keys`, and if causal each
// later row one more.
__device__ inline void hide(Scores& s, int keys, int causal) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        int key = n * 8 + lane % 4 * 2 + c % 2;
        int row = i * 16 + c / 2 * 8 + lane / 4;
        if (key >= keys + causal * row) s[i][n][c] = -INFINITE;
      }
}

// Rows' maxima m, of scores times factor, move on with those of the
// tile. base is what is to be subtracted now, and older sums shrink
// by what it is more.
__device__ inline void move_bases(Scores& s, float factor, Rows& m,
                                  Rows& base, Rows& shrink) {
  float farthest = 0;
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = -INFINITE, old = m[i][h];
#pragma unroll
      for (int n = 0; n < Bc / 8; ++n)
        most = fmaxf(most, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      m[i][h] = fmaxf(old, most * factor);
      // No score yet but -infinity: any finite base gives zeros.
      base[i][h] = m[i][h] == -INFINITE ? 0.0f : m[i][h];
      shrink[i][h] = exp2_(old - base[i][h]);
      farthest = fmaxf(farthest, fabsf(base[i][h]));
    }
  if (farthest < FAR) return;
  // So far out the maximum was rounded by more than an exponent may
  // be off: differences come first, and each product is rounded too.
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        s[i][n][c] = (__fmul_rn(s[i][n][c], factor) - base[i][c / 2]) *
                     (1 / factor);
#pragma unroll
  for (int i = 0; i < BANDS; ++i) base[i][0] = base[i][1] = 0;
}

// P of 16 keys as mma wants it, of scores from n on, a multiple of 2;
// what it sums to is added to l.
__device__ inline void take_exponents(unsigned (&p)[BANDS][4],
                                      const Scores& s, int n,
                                      float factor, const Rows& base,
                                      Rows& l) {
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      int h = e % 2;
      const float* two = &s[i][n + e / 2][2 * h];
      float a = exp2_(fmaf(two[0], factor, -base[i][h]));
      float b = exp2_(fmaf(two[1], factor, -base[i][h]));
      l[i][h] += a + b;
      p[i][e] = pair(a, b);
    }
}

// Rows of sums times a factor each.
template <int COLS>
__device__ inline void scale_rows(Band (&x)[BANDS][COLS],
                                  const Rows& by) {
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int n = 0; n < COLS; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) x[i][n][c] *= by[i][c / 2];
}

// A row of O, divided by l, to its place; d is what it has.
__device__ inline void write_row(Half* O, const Band (&o)[DP / 8],
                                 int h, float l, int d) {
  int first = threadIdx.x % 4 * 2;
  float over = 1 / l;
#pragma unroll
  for (int n = 0; n < DP / 8; ++n) {
    int c = n * 8 + first;
    unsigned both = pair(o[n][2 * h] * over, o[n][2 * h + 1] * over);
    if (c >= d) return;
    if (d % 2 == 0) {  // rows begin on 4 bytes
      *(unsigned*)&O[c] = both;
    } else {
      O[c] = both;
      if (c + 1 < d) O[c + 1] = both >> 16;
    }
  }
}
