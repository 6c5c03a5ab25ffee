// Tensor cores by their own instruction, with the data loaded ahead.
//
// Idea: mma.sync multiplies 16 x 16 by 16 x 8 in one instruction of a
// warp. The layout of its fragments over the lanes is documented. The
// warp therefore loads them by ldmatrix. Swizzled tiles avoid bank
// conflicts. The warp loads the next fragments while it multiplies
// these. cp.async copies STAGES tiles ahead, not through registers.
// What limits it: Hopper's tensor cores reach their full rate only
// with wgmma. wgmma reads its matrices from shared memory.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 32 lanes for each
// WM x WN of the tile. Dynamic shared memory: STAGES times tile_a and
// tile_b. BM, BN, BK, WM, WN, STAGES, GROUP and BF16 are defines.

#include "../../cuda/mma.cuh"

constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int STEPS = BK / 16;            // of a tile, 16 k each
constexpr int STAGE = BM * BK + BK * BN;  // elements of both tiles

// What a warp multiplies in one step: registers of one lane.
struct Fragments {
  unsigned a[WM / 16][4];  // of 16 x 16 each
  unsigned b[WN / 16][4];  // of 16 x 16 each: two of 16 x 8
};

// Begins to copy one of the STEPS parts of a tile [ROWS, COLS]. This
// thread copies pieces of 8 elements, the first from *from to
// (row, col) of the tile. rows_left x cols_left elements of the
// matrix remain; beyond them zeros are written.
template <int ROWS, int COLS>
__device__ inline void copy_part(Half* tile, const Half* from,
                                 int row, int col, int rows_left,
                                 int cols_left, int row_stride,
                                 int part) {
  constexpr int PASS = THREADS / (COLS / 8);  // rows at a time
  constexpr int PART = ROWS / STEPS;          // rows
  static_assert(PASS > 0 && PART % PASS == 0, "passes fill a part");
  if (col >= cols_left) rows_left = 0;
#pragma unroll
  for (int offset = part * PART; offset < (part + 1) * PART;
       offset += PASS)
    copy_async<16>(tile + swizzled<COLS>(row + offset, col),
                   from + (size_t)offset * row_stride,
                   row + offset < rows_left);
}

__device__ inline void load_fragments(Fragments& fragments,
                                      const Half* tile_a,
                                      int warp_row, int warp_col,
                                      int step) {
  const Half* tile_b = tile_a + BM * BK;
  // The lane gives the address of this row of 8 elements.
  int lane_row = threadIdx.x % 16;
  int lane_col = threadIdx.x % 32 / 16 * 8;
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
    load_matrices(fragments.a[i],
                  tile_a + swizzled<BK>(warp_row + i * 16 + lane_row,
                                        step * 16 + lane_col));
#pragma unroll
  for (int j = 0; j < WN / 16; ++j)
    load_transposed(
        fragments.b[j],
        tile_b + swizzled<BN>(step * 16 + lane_row,
                              warp_col + j * 16 + lane_col));
}

__device__ inline void multiply(float (&sum)[WM / 16][WN / 8][4],
                                const Fragments& fragments) {
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
#pragma unroll
    for (int j = 0; j < WN / 8; ++j) {
      // Every second row is multiplied backwards. The last b of a row
      // is the first of the next: it is still in the operand cache.
      int n = i % 2 ? WN / 8 - 1 - j : j;
      multiply_add(sum[i][n], fragments.a[i],
                   fragments.b[n / 2][n % 2 * 2],
                   fragments.b[n / 2][n % 2 * 2 + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) mma_sync(
    const Half* __restrict__ A,    // [M, K]
    const Half* __restrict__ B,    // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(128) char shared[];
  auto tile_a = (Half*)shared;    // [BM, BK], STAGES times
  auto tile_b = tile_a + BM * BK;  // [BK, BN], after each tile_a
  // Blocks go down GROUP tiles before they go one tile to the right.
  // Blocks that run together then share rows of A and columns of B
  // in the L2 cache.
  int block = blockIdx.y * gridDim.x + blockIdx.x;
  int group_row = block / (GROUP * gridDim.x) * GROUP;  // in tiles
  int group_rows = min((int)gridDim.y - group_row, GROUP);
  block -= group_row * gridDim.x;
  // The block's tile begins here in C.
  int block_row = (group_row + block % group_rows) * BM;
  int block_col = block / group_rows * BN;
  // The warp's part begins here in the block's tile.
  int warp = threadIdx.x / 32;
  int warp_row = warp / (BN / WN) * WM;
  int warp_col = warp % (BN / WN) * WN;

  float sum[WM / 16][WN / 8][4] = {};
  Fragments fragments[2];  // those multiplied, those loaded meanwhile
  // Each row of A and B begins at a multiple of 16 bytes:
  if (K % 8 == 0 && N % 8 == 0) {
    // The thread copies 8 elements of A and of B from here on.
    int load_a_row = threadIdx.x / (BK / 8);
    int load_a_col = threadIdx.x % (BK / 8) * 8;
    int load_b_row = threadIdx.x / (BN / 8);
    int load_b_col = threadIdx.x % (BN / 8) * 8;
    A += (size_t)(block_row + load_a_row) * K + load_a_col;
    B += (size_t)load_b_row * N + block_col + load_b_col;
    auto copy_parts = [&](int stage, int k_tile, int part) {
      copy_part<BM, BK>(tile_a + stage * STAGE, A + k_tile,
                        load_a_row, load_a_col, M - block_row,
                        K - k_tile, K, part);
      copy_part<BK, BN>(tile_b + stage * STAGE,
                        B + (size_t)k_tile * N, load_b_row,
                        load_b_col, K - k_tile, N - block_col, N,
                        part);
    };
    for (int stage = 0; stage < STAGES - 1; ++stage) {
      for (int part = 0; part < STEPS; ++part)
        copy_parts(stage, stage * BK, part);
      close_group();
    }
    wait_groups<STAGES - 2>();
    __syncthreads();
    load_fragments(fragments[0], tile_a, warp_row, warp_col, 0);
    int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
    for (int k_tile = 0; k_tile < K; k_tile += BK)
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        copy_parts(fill_stage, k_tile + (STAGES - 1) * BK, step);
        if (step == STEPS - 1) {
          close_group();
          wait_groups<STAGES - 2>();  // the next stage is complete
          __syncthreads();  // and all threads have read this one
          fill_stage = read_stage;
          read_stage = read_stage + 1 < STAGES ? read_stage + 1 : 0;
        }
        load_fragments(fragments[(step + 1) % 2],
                       tile_a + read_stage * STAGE, warp_row,
                       warp_col, (step + 1) % STEPS);
        multiply(sum, fragments[step % 2]);
      }
    wait_groups<0>();
  } else {
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
#pragma unroll 1
      for (int e = threadIdx.x; e < BM * BK; e += THREADS) {
        int tile_row = e / BK, m = block_row + tile_row;
        int tile_col = e % BK, k = k_tile + tile_col;
        bool inside = m < M && k < K;
        tile_a[swizzled<BK>(tile_row, tile_col)] =
            inside ? A[(size_t)m * K + k] : Half(0);
      }
#pragma unroll 1
      for (int e = threadIdx.x; e < BK * BN; e += THREADS) {
        int tile_row = e / BN, k = k_tile + tile_row;
        int tile_col = e % BN, n = block_col + tile_col;
        bool inside = k < K && n < N;
        tile_b[swizzled<BN>(tile_row, tile_col)] =
            inside ? B[(size_t)k * N + n] : Half(0);
      }
      __syncthreads();
#pragma unroll 1
      for (int step = 0; step < STEPS; ++step) {
        load_fragments(fragments[0], tile_a, warp_row, warp_col,
                       step);
        multiply(sum, fragments[0]);
      }
      __syncthreads();
    }
  }

  // A lane stores two neighbours of a row at a time. Three other
  // lanes store the rest of the sector.
  int row = warp_row + threadIdx.x % 32 / 4;
  int col = warp_col + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
#pragma unroll
    for (int j = 0; j < WN / 8; ++j)
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {  // 8 rows apart
        int m = block_row + row + i * 16 + pair * 8;
        int n = block_col + col + j * 8;
        if (m >= M || n >= N) continue;
        size_t c_index = (size_t)m * N + n;
        bool both = n + 1 < N;
        float2 c = make_float2(alpha * sum[i][j][pair * 2],
                               alpha * sum[i][j][pair * 2 + 1]);
        if (beta != 0) {
          c.x += beta * C0[c_index];
          if (both) c.y += beta * C0[c_index + 1];
        }
        if (N % 2 == 0) {  // each row begins at a multiple of 8 bytes
          *(float2*)&C[c_index] = c;
        } else {
          C[c_index] = c.x;
          if (both) C[c_index + 1] = c.y;
        }
      }
}
