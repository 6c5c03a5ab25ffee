// The steps of one warp of flash attention backward on tensor cores,
// beside those of flash_mma.cuh. There a block owns Br rows, and tiles
// of Bc rows pass by. Here both are queries in one kernel and keys in
// the other.

#include "flash_mma.cuh"

// Sums of a lane: two score tiles, and `OWNED` results of WM x DP.
// KEPT: the fragments of both own tiles stay in registers.
constexpr int ALL_SUMS = WM * (2 * Bc + OWNED * DP) / 32;
constexpr int OWN_FRAGMENTS = 2 * WM * DP / 64;
constexpr bool KEPT = ALL_SUMS + OWN_FRAGMENTS <= 160;
// Blocks that share an SM. Each thread then has 128, 168 or 255
// registers. SPACE is the number of threads.
constexpr int NEEDED = KEPT ? ALL_SUMS + OWN_FRAGMENTS : ALL_SUMS;
constexpr int SPACE = NEEDED > 104 ? 256 : NEEDED > 72 ? 384 : 512;
constexpr int BLOCKS = THREADS < SPACE ? SPACE / THREADS : 1;

// The fragments of one own tile: all of them if KEPT, else 16 columns.
struct Own {
  const Half* tile;  // the warp's rows of it
  Queries kept[KEPT ? DP / 16 : 1];

  __device__ inline explicit Own(const Half* rows) : tile(rows) {
    if (KEPT)
#pragma unroll
      for (int k = 0; k < DP / 16; ++k)
        load_queries(kept[k], tile + k * 16, 0);
  }

  // s = the warp's rows times the rows of `passing`.
  __device__ inline void multiply(Scores& s, const Half* passing) {
#pragma unroll
    for (int i = 0; i < BANDS; ++i)
#pragma unroll
      for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][n][e] = 0;
#pragma unroll
    for (int k = 0; k < DP / 16; ++k) {
      if (!KEPT) load_queries(kept[0], tile + k * 16, 0);
      add_scores(s, kept[KEPT ? k : 0], passing + k * 16);
    }
  }
};

// Rounds 16 columns of s from column n * 8 on to 16 bits: a left factor
// of mma.sync. n is even.
__device__ inline void as_factor(unsigned (&factor)[BANDS][4],
                                 const Scores& s, int n) {
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* both = &s[i][n + e / 2][e % 2 * 2];
      factor[i][e] = pair(both[0], both[1]);
    }
}

// Stores the lane's part of the warp's rows of Y, times `factor`. Y has
// `rows_left` rows from the warp's first one on, of d elements each.
__device__ inline void store_rows(Half* Y, const Values& sums,
                                  int rows_left, int d, float factor) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      int row = i * 16 + lower * 8 + lane / 4;
      if (row >= rows_left) continue;
      Half* target = Y + (size_t)row * d;
#pragma unroll
      for (int n = 0; n < DP / 8; ++n) {
        int col = n * 8 + lane % 4 * 2;
        unsigned both = pair(sums[i][n][2 * lower] * factor,
                             sums[i][n][2 * lower + 1] * factor);
        if (col >= d) continue;
        if (d % 2 == 0) {  // rows begin on 4 bytes
          *(unsigned*)&target[col] = both;
        } else {
          target[col] = both;
          if (col + 1 < d) target[col + 1] = both >> 16;
        }
      }
    }
}
