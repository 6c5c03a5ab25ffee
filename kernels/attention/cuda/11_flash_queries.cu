// dQ of flash attention backward, without atomics.
//
// Idea: a block owns Br queries, and the keys pass by, as in the
// forward pass. A lane has TM rows by Bc / 8 keys of P and dP, and TM
// rows by DP / 8 columns of dQ. There is no running maximum: L is
// known, so nothing is rescaled. A warp has complete rows of dS, so no
// other warp reads its rows of tile_ds.
// What limits it: the FP32 multiply-adds, three products.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each 4 * TM rows
// of Br, shared memory 4 * (2 * (Br + Bc) * (DP + 4) + Br * (Bc + 8))
// bytes. Br, Bc, TM and DP are defines. DP is a multiple of 32, d or
// more.

#include "../../cuda/async.cuh"
#include "../../cuda/gemm.cuh"
#include "attention.cuh"

constexpr int THREADS = Br / TM * 8;
constexpr int TN = Bc / 8, TD = DP / 8;  // keys, columns of a lane
constexpr int PITCH = DP + 4;

// Blocks that share an SM. ROOM is the number of threads that have 255
// registers each.
constexpr int ROOM = 256;
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

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
  close_group();
}

// s = A B^T: the lane's rows of A with its rows of B.
__device__ inline void multiply_rows(float (&s)[TM][TN], const float* A,
                                     const float* B) {
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int n = 0; n < TN; ++n) s[i][n] = 0;
#pragma unroll 2
  for (int dim = 0; dim < DP; dim += 4) {
    float4 a[TM];
#pragma unroll
    for (int i = 0; i < TM; ++i)
      a[i] = *(const float4*)&A[4 * i * PITCH + dim];
#pragma unroll
    for (int n = 0; n < TN; ++n) {
      float4 b = *(const float4*)&B[8 * n * PITCH + dim];
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        s[i][n] += a[i].x * b.x;
        s[i][n] += a[i].y * b.y;
        s[i][n] += a[i].z * b.z;
        s[i][n] += a[i].w * b.w;
      }
    }
  }
}

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) flash_queries(
    const float* __restrict__ Q,   // [B*H, N, d]
    const float* __restrict__ K,   // [B*H, N, d]
    const float* __restrict__ V,   // [B*H, N, d]
    const float* __restrict__ dO,  // [B*H, N, d]
    const float* __restrict__ L,   // [B*H, N]
    const float* __restrict__ D,   // [B*H, N]
    float* __restrict__ dQ,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) float shared[];
  float* tile_q = shared;                // [Br, PITCH]
  float* tile_do = tile_q + Br * PITCH;  // [Br, PITCH]
  float* tile_k = tile_do + Br * PITCH;  // [Bc, PITCH]
  float* tile_v = tile_k + Bc * PITCH;   // [Bc, PITCH]
  float* tile_ds = tile_v + Bc * PITCH;  // [Br, Bc + 8]
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // 4 rows by 8 columns of lanes, in pairs as in GEMM's warp tile.
  int lane_row = lane / 16 * 2 + lane % 2;
  int lane_col = lane / 2 % 8;
  int thread_row = warp * 4 * TM + lane_row;  // its first in the tile
  // If causal, the last rows have the most work: they start first.
  int query_tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = query_tile * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  size_t rows = head + (size_t)block_query * d;
  L += (size_t)blockIdx.y * N, D += (size_t)blockIdx.y * N;
  K += head, V += head, dQ += rows;

  load_tile<Br>(tile_q, Q + rows, N - block_query, d);
  load_tile<Br>(tile_do, dO + rows, N - block_query, d);
  load_tile<Bc>(tile_k, K, N, d);
  load_tile<Bc>(tile_v, V, N, d);
  float dq[TM][TD] = {}, row_l[TM], row_d[TM];
  float factor = scale * LOG2E;  // for powers of 2
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    int query = block_query + thread_row + 4 * i;
    row_l[i] = query < N ? L[query] * LOG2E : 0.0f;  // for powers of 2
    row_d[i] = query < N ? D[query] : 0.0f;
  }
  int key_end = visible_keys(block_query + Br - 1, N, causal);
#pragma unroll 1
  for (int key_tile = 0; key_tile < key_end; key_tile += Bc) {
    wait_groups<0>();
    __syncthreads();  // the tiles are loaded
    float p[TM][TN], dp[TM][TN];
    multiply_rows(p, tile_q + thread_row * PITCH, tile_k + lane_col * PITCH);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int n = 0; n < TN; ++n) {
        int key = key_tile + lane_col + 8 * n;
        int query = block_query + thread_row + 4 * i;
        bool visible = key < visible_keys(query, N, causal);
        p[i][n] = exp2_(fmaf(p[i][n], factor, -row_l[i]));
        p[i][n] = visible ? p[i][n] : 0.0f;
      }
    multiply_rows(dp, tile_do + thread_row * PITCH,
                  tile_v + lane_col * PITCH);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int n = 0; n < TN; ++n)
        tile_ds[(thread_row + 4 * i) * (Bc + 8) + lane_col + 8 * n] =
            p[i][n] * (dp[i][n] - row_d[i]);
    __syncthreads();  // dS is there; all have used V
    bool more = key_tile + Bc < key_end;
    size_t next = (size_t)(key_tile + Bc) * d;
    if (more) load_tile<Bc>(tile_v, V + next, N - key_tile - Bc, d);

#pragma unroll 2
    for (int key = 0; key < Bc; key += 4) {  // dQ += dS K
      __align__(16) float ds[TM][4];
#pragma unroll
      for (int i = 0; i < TM; ++i)
        *(float4*)ds[i] =
            *(float4*)&tile_ds[(thread_row + 4 * i) * (Bc + 8) + key];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        __align__(16) float x[TD];
#pragma unroll
        for (int n = 0; n < TD; n += 4)
          *(float4*)&x[n] =
              *(float4*)&tile_k[(key + k) * PITCH + 4 * lane_col + 8 * n];
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int n = 0; n < TD; ++n) dq[i][n] += ds[i][k] * x[n];
      }
    }
    __syncthreads();  // all have used K
    if (more) load_tile<Bc>(tile_k, K + next, N - key_tile - Bc, d);
  }

#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int n = 0; n < TD; n += 4)
      store4(dQ, dQ, N - block_query, d, thread_row + 4 * i,
             4 * lane_col + 8 * n, &dq[i][n], scale, 0);
}
