// The warps that multiply do nothing else.
//
// Idea: a producer warpgroup fills a ring of stages. It starts the
// copy engine (TMA), which computes addresses, loads zeros beyond the
// matrices and needs no registers. Barriers in shared memory
// (mbarriers) say which stage is full or empty, so no warp waits for
// all others. The copy engine cannot transpose. The producer does it
// while it moves the tile of A to its stage: it reads 4 x 4 floats by
// rows and writes them by columns. A group of four neighbours in a
// column of tile_a is made of rows BM / 4 apart: reads and writes are
// then free of bank conflicts.
// What limits it: the multiply-adds. For each k a thread has 128 of
// them and 6 loads from shared memory.
//
// Launch: grid (ceil(M / BM) * ceil(N / BN)), block 32 consumers for
// each 64 x 64 of the tile and 128 producers. Dynamic shared memory:
// 2 tiles of A as they arrive, then STAGES times tile_a and tile_b,
// and 2 * STAGES + 2 barriers. BM, BN, STAGES and GROUP are defines.
// K and N are multiples of 4.

#include "../../cuda/gemm.cuh"
#include "../../cuda/hopper.cuh"
#include "tile_order.cuh"

constexpr int BK = 32;                     // 128 bytes of a row of A
constexpr int WM = 64, WN = 64;            // of a warp's tile
constexpr int TM = 8, TN = 16;             // of a thread's
constexpr int CONSUMERS = BM / WM * (BN / WN);  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;
// Registers of a thread, instead of 168 for each of 384:
constexpr int FOR_PRODUCER = 40, FOR_CONSUMER = 232;
constexpr int ARRIVALS = 2;            // tiles of A not transposed yet
constexpr int STAGE = (BM + BN) * BK;  // floats

// One store of 16 bytes: the compiler splits some that C++ writes.
__device__ inline void store_column(float* to, float x, float y,
                                    float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(to)),
               "f"(x), "f"(y), "f"(z), "f"(w)
               : "memory");
}

// Copies a swizzled tile of A [BM, BK] to tile_a [BK, BM].
__device__ inline void transpose(const float* from, float* tile_a) {
#pragma unroll 1
  for (int i = threadIdx.x % 128; i < BM * BK / 16; i += 128) {
    int column = i % (BM / 4), piece = i / (BM / 4);  // four of k
    __align__(16) float rows[4][4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      int m = column + r * (BM / 4);
      *(float4*)rows[r] = *(float4*)&from[m * BK + (piece ^ m % 8) * 4];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      store_column(&tile_a[(piece * 4 + k) * BM + column * 4],
                   rows[0][k], rows[1][k], rows[2][k], rows[3][k]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
transposed_ring(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, BK]
    const __grid_constant__ TensorMap B,  // [K, N], boxes [BK, BN]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(1024) char shared[];
  auto arrived_a = (float*)shared;               // [ARRIVALS][BM, BK]
  auto tiles = arrived_a + ARRIVALS * BM * BK;   // [STAGES]: a and b
  auto full = (Barrier*)(tiles + STAGES * STAGE);  // [STAGES]
  auto empty = full + STAGES;                      // [STAGES]
  auto arrived = empty + STAGES;                   // [ARRIVALS]
  TilePosition at = tile_position(blockIdx.x, (M + BM - 1) / BM,
                                  (N + BN - 1) / BN, GROUP);
  int block_row = at.row * BM, block_col = at.col * BN;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + stage, 1 + 128);  // the copy, producers
      init_barrier(empty + stage, 32 * CONSUMERS);
    }
    for (int slot = 0; slot < ARRIVALS; ++slot)
      init_barrier(arrived + slot, 1);
    publish_barriers();
  }
  __syncthreads();

  int stage = 0, parity = 0;
  if (warp >= CONSUMERS) {  // the producer
    if (THREADS > 256) release_registers<FOR_PRODUCER>();
    bool starts_copies = threadIdx.x == 32 * CONSUMERS;
    auto copy_a = [&](int k_tile) {
      int slot = k_tile / BK % ARRIVALS;
      arrive_expecting(arrived + slot, BM * BK * 4);
      load_box(arrived_a + slot * BM * BK, &A, k_tile, block_row,
               arrived + slot);
    };
    if (starts_copies) copy_a(0);
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
      float* tile_a = tiles + stage * STAGE;
      int slot = k_tile / BK % ARRIVALS;
      warpgroup_barrier(CONSUMERS / 4);  // the last one is transposed
      if (starts_copies && k_tile + BK < K) copy_a(k_tile + BK);
      wait(empty + stage, parity ^ 1);  // at first all are empty
      if (starts_copies) {
        arrive_expecting(full + stage, BK * BN * 4);
        load_box(tile_a + BM * BK, &B, block_col, k_tile,
                 full + stage);
      }
      wait(arrived + slot, k_tile / BK / ARRIVALS % 2);
      transpose(arrived_a + slot * BM * BK, tile_a);
      arrive(full + stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  if (THREADS > 256) take_registers<FOR_CONSUMER>();
  // The first of the thread's 4 x 4 squares begins here.
  int thread_row = warp / (BN / WN) * WM + lane / 2 % 8 * 4;
  int thread_col = warp % (BN / WN) * WN +
                   (lane % 2 + lane / 16 * 2) * 4;
  __align__(16) float a[2][TM], b[2][TN];
  auto load_fragments = [&](int set, int stage, int k) {
    float* column_k = tiles + stage * STAGE + k * BM;         // [BM]
    float* row_k = tiles + stage * STAGE + BM * BK + k * BN;  // [BN]
#pragma unroll
    for (int i = 0; i < TM; i += 4)
      *(float4*)&a[set][i] =
          *(float4*)&column_k[thread_row + i * (WM / TM)];
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      *(float4*)&b[set][j] =
          *(float4*)&row_k[thread_col + j * (WN / TN)];
  };
  wait(full, 0);
  load_fragments(0, 0, 0);

  float sum[TM][TN] = {};
#pragma unroll 1
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
    int next = stage + 1, next_parity = parity;
    if (next == STAGES) next = 0, next_parity ^= 1;
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      if (k + 1 < BK) {
        load_fragments((k + 1) % 2, stage, k + 1);
      } else if (k_tile + BK < K) {
        wait(full + next, next_parity);
        load_fragments(0, next, 0);
      }
#pragma unroll
      for (int j = 0; j < TN; ++j)
#pragma unroll
        for (int n = 0; n < TM; ++n) {
          int i = j % 2 ? TM - 1 - n : n;
          sum[i][j] += a[k % 2][i] * b[k % 2][j];
        }
    }
    arrive(empty + stage);
    stage = next, parity = next_parity;
  }

#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      int place = thread_row + i / 4 * 4 * (WM / TM);  // in tile_a
      int m = block_row + place / 4 + i % 4 * (BM / 4);
      int n = block_col + thread_col + j * (WN / TN);
      store4(C, C0, M, N, m, n, &sum[i][j], alpha, beta);
    }
}
