// The backward pass of a tile of queries and a tile of keys, in FP32:
// three products in register tiles, as the kernels that own a tile of
// keys use them.
//
// The warps have two roles. A warp of role 0 computes P and adds to dV.
// A warp of role 1 computes dP and dS and adds to dK. Both do the same
// products on different tiles. A warp owns WK keys of the tile, so that
// its sums need only its own columns of P or dS.

#include "../../cuda/async.cuh"
#include "../../cuda/gemm.cuh"
#include "attention.cuh"

constexpr int PAIRS = Bc / WK;       // pairs of warps, one of each role
constexpr int THREADS = 64 * PAIRS;
constexpr int PITCH = DP + 4;        // of tiles of Q, K, V and dO
constexpr int PITCH_P = Bc + 4;      // of tiles of P and dS
constexpr int TQ = Br / 8, TK = WK / 4;  // queries, keys of a lane
constexpr int TD = DP / 8;               // columns of a lane
constexpr int TR = Br / (2 * PAIRS) / 4;  // rows of dQ of a lane
constexpr int ROOM = 256;            // threads with 255 registers each
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

// 8 by 4 lanes, or 4 by 8, in pairs as in GEMM's warp tile.
__device__ inline int lane_of_8() { return threadIdx.x / 2 % 8; }
__device__ inline int lane_of_4() {
  return threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2;
}

// Begins to copy ROWS rows of X to a tile. X has `rows_left` rows from
// here on, of d floats each. Elements outside become zero.
template <int ROWS>
__device__ inline void load_tile(float* tile, const float* X,
                                 int rows_left, int d) {
  constexpr int ACROSS = DP / 4;  // copies of 4 floats in a row
  for (int i = threadIdx.x; i < ROWS * ACROSS; i += THREADS) {
    int row = i / ACROSS, col = i % ACROSS * 4;
    float* target = tile + row * PITCH + col;
    const float* source = X + (size_t)row * d + col;
    int floats_left = row < rows_left ? d - col : 0;
    if (d % 4 == 0)  // then each row begins on 16 bytes
      copy_async<16>(target, source, floats_left > 0);
    else
      copy4_async<false>(target, source, floats_left);
  }
}

// s = A B^T: rows of A are queries, rows of B the warp's keys. A lane
// has queries lane_of_8() + 8 i and keys lane_of_4() + 4 n.
__device__ inline void multiply_rows(float (&s)[TQ][TK], const float* A,
                                     const float* B) {
  A += lane_of_8() * PITCH, B += lane_of_4() * PITCH;
#pragma unroll
  for (int i = 0; i < TQ; ++i)
#pragma unroll
    for (int n = 0; n < TK; ++n) s[i][n] = 0;
#pragma unroll 2
  for (int dim = 0; dim < DP; dim += 4) {
    float4 a[TQ];
#pragma unroll
    for (int i = 0; i < TQ; ++i)
      a[i] = *(const float4*)&A[8 * i * PITCH + dim];
#pragma unroll
    for (int n = 0; n < TK; ++n) {
      float4 b = *(const float4*)&B[4 * n * PITCH + dim];
#pragma unroll
      for (int i = 0; i < TQ; ++i) {
        s[i][n] += a[i].x * b.x;
        s[i][n] += a[i].y * b.y;
        s[i][n] += a[i].z * b.z;
        s[i][n] += a[i].w * b.w;
      }
    }
  }
}

// sums += P^T X: columns of P are the warp's keys, rows of P and X are
// queries. A lane has keys 4 lane_of_4() + 16 n and the three after
// each, and columns 4 lane_of_8() + 32 n and the three after each.
__device__ inline void add_columns(float (&sums)[TK][TD], const float* P,
                                   const float* X) {
  P += 4 * lane_of_4(), X += 4 * lane_of_8();
#pragma unroll 2
  for (int query = 0; query < Br; ++query) {
    __align__(16) float p[TK], x[TD];
#pragma unroll
    for (int n = 0; n < TK; n += 4)
      *(float4*)&p[n] = *(const float4*)&P[query * PITCH_P + 4 * n];
#pragma unroll
    for (int n = 0; n < TD; n += 4)
      *(float4*)&x[n] = *(const float4*)&X[query * PITCH + 8 * n];
#pragma unroll
    for (int i = 0; i < TK; ++i)
#pragma unroll
      for (int n = 0; n < TD; ++n) sums[i][n] += p[i] * x[n];
  }
}

// Stores the lane's sums, times `factor`. Y has `rows_left` rows from
// the warp's first key on.
__device__ inline void store_sums(float* Y, const float (&sums)[TK][TD],
                                  int rows_left, int d, float factor) {
#pragma unroll
  for (int i = 0; i < TK; ++i)
#pragma unroll
    for (int n = 0; n < TD; n += 4)
      store4(Y, Y, rows_left, d, 4 * lane_of_4() + i / 4 * 16 + i % 4,
             4 * lane_of_8() + 8 * n, &sums[i][n], factor, 0);
}
