// int8 on tensor cores: 4,096 multiply-adds in one instruction.
//
// Idea: with int8, mma.sync multiplies 16 x 32 by 32 x 8. A register
// of a fragment holds four int8 along k. ldmatrix loads 16 bytes of a
// row, whatever their type. So a Half is two int8 here, and tiles,
// swizzles and fragments are as in 11_mma_sync.cu. B is given as
// [N, K]: its rows are along k, as those of A. Sums are INT32 and
// exact in any order.
// What limits it: Hopper's tensor cores reach their full rate only
// with wgmma. wgmma reads its matrices from shared memory.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 32 lanes for each
// WM x WN of the tile. Dynamic shared memory: STAGES times tile_a and
// tile_b. BM, BN, BK, WM, WN, STAGES and GROUP are defines.

#include "../../cuda/mma.cuh"

constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int STEPS = BK / 32;            // of a tile, 32 k each
constexpr int PAIRS = BK / 2;             // of a row of a tile
constexpr int STAGE = (BM + BN) * PAIRS;  // pairs of both tiles

// What a warp multiplies in one step: registers of one lane.
struct Fragments {
  unsigned a[WM / 16][4];  // of 16 x 32 each
  unsigned b[WN / 16][4];  // of 16 x 32 each: two of 8 x 32
};

// Begins to copy one of the STEPS parts of a tile [ROWS, BK]. This
// thread copies pieces of 16 numbers, the first from *from to (row,
// col) of the tile, which counts pairs. rows_left x k_left numbers of
// the matrix remain; beyond them zeros are written.
template <int ROWS>
__device__ inline void copy_part(Half* tile, const signed char* from,
                                 int row, int col, int rows_left,
                                 int k_left, int row_stride,
                                 int part) {
  constexpr int PASS = THREADS / (BK / 16);  // rows at a time
  constexpr int PART = ROWS / STEPS;         // rows
  static_assert(PASS > 0 && PART % PASS == 0, "passes fill a part");
  if (2 * col >= k_left) rows_left = 0;
#pragma unroll
  for (int offset = part * PART; offset < (part + 1) * PART;
       offset += PASS)
    copy_async<16>(tile + swizzled<PAIRS>(row + offset, col),
                   from + (size_t)offset * row_stride,
                   row + offset < rows_left);
}

// Copies a tile [ROWS, BK] byte by byte: rows of the matrix do not
// begin at multiples of 16 bytes.
template <int ROWS>
__device__ inline void copy_bytes(Half* tile, const signed char* from,
                                  int rows_left, int k_left,
                                  int row_stride) {
#pragma unroll 1
  for (int e = threadIdx.x; e < ROWS * BK; e += THREADS) {
    int row = e / BK, k = e % BK;
    bool inside = row < rows_left && k < k_left;
    auto pair = (signed char*)(tile + swizzled<PAIRS>(row, k / 2));
    pair[k % 2] = inside ? from[(size_t)row * row_stride + k] : 0;
  }
}

// c [16, 8] += a [16, 32] x b [32, 8]: 4,096 multiply-adds.
__device__ inline void multiply_add(int (&c)[4],
                                    const unsigned (&a)[4],
                                    unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
        "r"(b1));
}

__device__ inline void load_fragments(Fragments& fragments,
                                      const Half* tile_a,
                                      int warp_row, int warp_col,
                                      int step) {
  const Half* tile_b = tile_a + BM * PAIRS;
  // The lane gives the address of this row of 8 pairs. The registers
  // of b are k 0 to 15 and 16 to 31 of 8 columns, then of the next 8.
  int lane = threadIdx.x % 32;
  int a_row = lane % 16, a_col = lane / 16 * 8;
  int b_row = lane / 16 * 8 + lane % 8, b_col = lane / 8 % 2 * 8;
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
    load_matrices(
        fragments.a[i],
        tile_a + swizzled<PAIRS>(warp_row + i * 16 + a_row,
                                 step * 16 + a_col));
#pragma unroll
  for (int j = 0; j < WN / 16; ++j)
    load_matrices(
        fragments.b[j],
        tile_b + swizzled<PAIRS>(warp_col + j * 16 + b_row,
                                 step * 16 + b_col));
}

__device__ inline void multiply(int (&sum)[WM / 16][WN / 8][4],
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

extern "C" __global__ void __launch_bounds__(THREADS) mma_bytes(
    const signed char* __restrict__ A,  // [M, K]
    const signed char* __restrict__ B,  // [N, K]
    int* __restrict__ C,                // [M, N]
    int M, int N, int K) {
  extern __shared__ __align__(128) char shared[];
  auto tile_a = (Half*)shared;        // [BM, BK], STAGES times
  auto tile_b = tile_a + BM * PAIRS;  // [BN, BK], after each tile_a
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

  int sum[WM / 16][WN / 8][4] = {};
  Fragments fragments[2];  // those multiplied, those loaded meanwhile
  A += (size_t)block_row * K;
  B += (size_t)block_col * K;
  if (K % 16 == 0) {  // each row begins at a multiple of 16 bytes
    // The thread copies 16 numbers of A and of B from here on.
    int row = threadIdx.x / (BK / 16);
    int col = threadIdx.x % (BK / 16) * 8;  // in pairs
    A += (size_t)row * K + 2 * col;
    B += (size_t)row * K + 2 * col;
    auto copy_parts = [&](int stage, int k_tile, int part) {
      copy_part<BM>(tile_a + stage * STAGE, A + k_tile, row, col,
                    M - block_row, K - k_tile, K, part);
      copy_part<BN>(tile_b + stage * STAGE, B + k_tile, row, col,
                    N - block_col, K - k_tile, K, part);
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
      copy_bytes<BM>(tile_a, A + k_tile, M - block_row, K - k_tile,
                     K);
      copy_bytes<BN>(tile_b, B + k_tile, N - block_col, K - k_tile,
                     K);
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
        int2 c = make_int2(sum[i][j][pair * 2],
                           sum[i][j][pair * 2 + 1]);
        if (N % 2 == 0) {  // each row begins at a multiple of 8 bytes
          *(int2*)&C[c_index] = c;
        } else {
          C[c_index] = c.x;
          if (n + 1 < N) C[c_index + 1] = c.y;
        }
      }
}
