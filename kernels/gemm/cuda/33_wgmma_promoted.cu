// FP8 with sums that keep the bits of FP32.
//
// Idea: the tensor core adds products of FP8 with about 14 bits. In a
// long sum, small products are lost. Here a product never adds more
// than 128 k. The threads then add its result to FP32 sums, with
// their own units (promotion). A thread has sums of both kinds, so a
// consumer computes its part of the tile in pieces of 64 x WN.
// What limits it: the additions. While one consumer adds, only the
// other one uses the tensor cores.
//
// Launch: grid (at most BLOCKS), block 384 threads: two consumer
// warpgroups and the producer. Dynamic shared memory: STAGES times
// tile_a and tile_b, two boxes of C for each consumer, and 2 * STAGES
// barriers. BM, BN, WN, STAGES, GROUP and FP8 (1) are defines.

#include "wgmma_bytes.cuh"

constexpr int CONSUMERS = 2;        // warpgroups
constexpr int WM = BM / CONSUMERS;  // rows of each
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Registers of a thread, instead of 168 for each of 384:
constexpr int FOR_PRODUCER = 40, FOR_CONSUMER = 232;
constexpr int STAGE = (BM + BN) * ROW;  // bytes of both tiles

// Adds a piece to the sums, in FP32.
__device__ inline void promote(Sum (&sum)[WN / 8][4],
                               const Sum (&piece)[WN / 8][4]) {
#pragma unroll
  for (int j = 0; j < WN / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[j][e] += piece[j][e];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wgmma_promoted(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, 128]
    const __grid_constant__ TensorMap B,  // [N, K], boxes [BN, 128]
    const __grid_constant__ TensorMap C,  // [M, N], boxes [64, 32]
    int M, int N, int K) {
  extern __shared__ __align__(1024) char shared[];
  char* tiles = shared;  // [STAGES][BM, 128] and [BN, 128]
  auto boxes = (Sum*)(tiles + STAGES * STAGE);  // [2][2][64, 32]
  auto full = (Barrier*)(boxes + CONSUMERS * 2 * 64 * 32);
  auto empty = full + STAGES;  // [STAGES] each
  int rows = (M + BM - 1) / BM, cols = (N + BN - 1) / BN;  // of tiles
  int warpgroup = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + stage, 1);
      init_barrier(empty + stage, CONSUMERS);
    }
    publish_barriers();
  }
  __syncthreads();

  int stage = 0, parity = 0;
  if (warpgroup == CONSUMERS) {  // the producer
    release_registers<FOR_PRODUCER>();
    if (threadIdx.x % 128 != 0) return;
    for (int tile = blockIdx.x; tile < rows * cols;
         tile += gridDim.x) {
      TilePosition at = tile_position(tile, rows, cols, GROUP);
      for (int k_tile = 0; k_tile < K; k_tile += ROW) {
        char* tile_a = tiles + stage * STAGE;
        char* tile_b = tile_a + BM * ROW;
        wait(empty + stage, parity ^ 1);  // at first all are empty
        arrive_expecting(full + stage, STAGE);
        load_box(tile_a, &A, k_tile, at.row * BM, full + stage);
        load_box(tile_b, &B, k_tile, at.col * BN, full + stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    return;
  }

  take_registers<FOR_CONSUMER>();
  for (int tile = blockIdx.x; tile < rows * cols;
       tile += gridDim.x) {
    TilePosition at = tile_position(tile, rows, cols, GROUP);
    Sum sum[WM / 64][BN / WN][WN / 8][4] = {};
    for (int k_tile = 0; k_tile < K; k_tile += ROW) {
      char* tile_a = tiles + stage * STAGE;
      char* tile_b = tile_a + BM * ROW;
      wait(full + stage, parity);
#pragma unroll
      for (int i = 0; i < WM / 64; ++i)
#pragma unroll
        for (int j = 0; j < BN / WN; ++j) {
          Sum piece[WN / 8][4];  // of 128 k
          begin_products();
#pragma unroll
          for (int k = 0; k < ROW; k += 32)
            multiply_bytes(piece,
                           part_of(tile_a, warpgroup * WM + i * 64, k),
                           part_of(tile_b, j * WN, k), k > 0);
          close_products();
          wait_products<0>();
          promote(sum[i][j], piece);
        }
      if (threadIdx.x % 128 == 0) arrive(empty + stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
#pragma unroll
    for (int i = 0; i < WM / 64; ++i)
#pragma unroll
      for (int j = 0; j < BN / WN; ++j)
        store_boxes<WN>(sum[i][j], &C, boxes + warpgroup * 2 * 64 * 32,
                        at.row * BM + warpgroup * WM + i * 64,
                        at.col * BN + j * WN, warpgroup);
  }
  if (threadIdx.x % 128 == 0) wait_stores_read<0>();
}
