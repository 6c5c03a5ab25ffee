// What both implicit-GEMM kernels share: everything but the index
// arithmetic. Their product is C = A x B for each group: A the
// filters [K / groups, C / groups * R * S], B the data matrix, made
// tile by tile in shared memory, C the output [K / groups, N*P*Q].

#include "../gemm/async.cuh"
#include "conv.cuh"
#include "layer.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int WARPS = THREADS / 32;
constexpr int COLUMNS = BN / 32;  // a thread copies, of each row
constexpr int ACROSS = TN < TM ? 8 : 4;  // lanes along a row
constexpr int WM = 32 / ACROSS * TM, WN = ACROSS * TN;  // of a warp
constexpr int STAGE = BK * (BM + 4 + BN);  // floats
constexpr int PART = 1536;  // terms summed at a stretch

// Blocks that must fit an SM together: as many as leave each thread
// 128 registers, or 168 if it has more than 32 sums.
constexpr int ROOM = TM * TN > 32 ? 384 : 512;  // threads
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

// The filters' tile, turned: As[k][m]. A warp copies 8 of k in 4
// rows, so that each lands in a bank of its own. `w` is the thread's
// first element, (k, m) its place in the tile; `rows` and `inner` are
// left of the matrix from the tile on, `next` floats lie from one row
// to the next. Zeros beyond.
constexpr int KA = 8, MA = THREADS / KA;

__device__ inline void fetch_filters(float* As, const float* w,
                                     int k, int m, int inner,
                                     int rows, int next) {
#pragma unroll
  for (int i = 0; i < BK; i += KA) {
    int left = k + i < inner ? rows - m : 0;
#pragma unroll
    for (int j = 0; j < BM; j += MA)
      copy_async<4>(As + (k + i) * (BM + 4) + m + j,
                    w + (size_t)j * next + i, j < left);
  }
}

// A thread's sums: TM rows by TN columns in pieces of 4 x 4, the
// lanes of a warp in pairs over its tile (gemm/09_warp_tile.cu).
struct Place {
  int row, col;  // of the first sum
};

__device__ inline Place place() {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int down = lane / (2 * ACROSS) * 2 + lane % 2;
  return {warp / (BN / WN) * WM + down * 4,
          warp % (BN / WN) * WN + lane / 2 % ACROSS * 4};
}

__device__ inline void multiply(float (&sum)[TM][TN],
                                const float* stage, Place at) {
  const float* As = stage + at.row;  // [BK, BM + 4]
  const float* Bs = stage + BK * (BM + 4) + at.col;  // [BK, BN]
#pragma unroll
  for (int k = 0; k < BK; ++k) {
    __align__(16) float a[TM], b[TN];
#pragma unroll
    for (int i = 0; i < TM; i += 4)
      *(float4*)&a[i] =
          *(float4*)&As[k * (BM + 4) + i * (WM / TM)];
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      *(float4*)&b[j] = *(float4*)&Bs[k * BN + j * (WN / TN)];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
  }
}

// WIDE floats that are moved by one instruction.
template <int WIDE>
struct alignas(4 * WIDE) Pack {
  float of[WIDE];
};

// A thread's sums to y, WIDE neighbours at a time; `offset` tells
// where a column of C begins in y. The `first` part of a long sum is
// stored as it is, later ones are added to it, after the `last` come
// bias and ReLU.
template <int WIDE, class Offset>
__device__ inline void store(float* y, const float* b,
                             const float (&sum)[TM][TN], int row,
                             int col, int rows, int columns,
                             int pixels, const Layer& layer,
                             bool first, bool last, Offset offset) {
#pragma unroll
  for (int j = 0; j < TN; j += WIDE) {
    int n = col + j / 4 * 4 * (WN / TN) + j % 4;
    if (n >= columns) continue;
    float* to = y + offset(n);
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      int m = row + i / 4 * 4 * (WM / TM) + i % 4;
      if (m >= rows) continue;
      auto* at = (Pack<WIDE>*)(to + (size_t)m * pixels);
      Pack<WIDE> value = {};
      if (!first) value = *at;
#pragma unroll
      for (int e = 0; e < WIDE; ++e) {
        value.of[e] += sum[i][j + e];
        if (last) value.of[e] = finished(value.of[e], b, m, layer);
      }
      *at = value;
    }
  }
}
