// Consumers take turns: one multiplies while the other one stores.
//
// Idea: each consumer has tiles of its own, every second one of the
// block. It waits for its turn, multiplies, and passes the turn on
// before it stores. So the tensor cores do not wait for a store.
// What limits it: power. A tile of 128 x 128, which one consumer can
// keep, reads 4 / 3 as many bytes from the L2 cache for each product
// as one of 128 x 256.
//
// Launch: grid (at most BLOCKS), block 384 threads: two consumer
// warpgroups and the producer. Dynamic shared memory: STAGES times
// tile_a and tile_b, two boxes of C for each consumer, and
// 2 * STAGES + 2 barriers. BM, BN, STAGES, GROUP and BF16 are defines.

#include "wgmma_ahead.cuh"

constexpr int CONSUMERS = 2;  // warpgroups
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Registers of a thread, instead of 168 for each of 384:
constexpr int FOR_PRODUCER = 40, FOR_CONSUMER = 232;
constexpr int STAGE = (BM + BN) * BK;  // elements of both tiles

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wgmma_turns(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, BK]
    const __grid_constant__ TensorMap B,  // [K, N], boxes [BK, 64]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    const __grid_constant__ TensorMap C,  // [M, N], boxes [64, 32]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(1024) char shared[];
  auto tiles = (Half*)shared;  // [STAGES][BM, BK] and [BK, BN]
  auto boxes = (float*)(tiles + STAGES * STAGE);  // [2][2][64, 32]
  auto full = (Barrier*)(boxes + CONSUMERS * 2 * 64 * 32);
  auto empty = full + STAGES;  // [STAGES] each
  auto turn = empty + STAGES;  // [CONSUMERS]
  int rows = (M + BM - 1) / BM, cols = (N + BN - 1) / BN;  // of tiles
  int warpgroup = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + stage, 1);
      init_barrier(empty + stage, 1);
    }
    for (int consumer = 0; consumer < CONSUMERS; ++consumer)
      init_barrier(turn + consumer, 1);
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
      for (int k_tile = 0; k_tile < K; k_tile += BK) {
        Half* tile_a = tiles + stage * STAGE;
        Half* tile_b = tile_a + BM * BK;
        wait(empty + stage, parity ^ 1);  // at first all are empty
        arrive_expecting(full + stage, STAGE * 2);
        load_box(tile_a, &A, k_tile, at.row * BM, full + stage);
#pragma unroll
        for (int n = 0; n < BN; n += 64)
          load_box(tile_b + n * BK, &B, at.col * BN + n, k_tile,
                   full + stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    return;
  }

  take_registers<FOR_CONSUMER>();
  float sum[BM / 64][BN / 8][4];
  int steps = (K + BK - 1) / BK;  // of a tile, a stage each
  int first_step = warpgroup * steps;
  int turn_parity = warpgroup ^ 1;  // the first turn is consumer 0's
  for (int tile = blockIdx.x + warpgroup * gridDim.x;
       tile < rows * cols; tile += CONSUMERS * gridDim.x) {
    TilePosition at = tile_position(tile, rows, cols, GROUP);
    stage = first_step % STAGES, parity = first_step / STAGES % 2;
    first_step += CONSUMERS * steps;
    wait(turn + warpgroup, turn_parity);
    turn_parity ^= 1;
    int last = 0;  // the stage that is still multiplied
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
      Half* tile_a = tiles + stage * STAGE;
      Half* tile_b = tile_a + BM * BK;
      wait(full + stage, parity);
      begin_products();
#pragma unroll
      for (int k = 0; k < BK; k += 16)
#pragma unroll
        for (int i = 0; i < BM / 64; ++i)
          multiply(sum[i], part_a(tile_a, i * 64, k),
                   part_b(tile_b, k), k_tile + k > 0);
      close_products();
      wait_products<1>();  // those of the stage before have ended
      if (threadIdx.x % 128 == 0 && k_tile > 0) arrive(empty + last);
      last = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    if (threadIdx.x % 128 == 0) arrive(turn + (warpgroup ^ 1));
    wait_products<0>();
    if (threadIdx.x % 128 == 0) arrive(empty + last);
#pragma unroll
    for (int i = 0; i < BM / 64; ++i)
      store_boxes_ahead<BN>(sum[i], C0, &C,
                            boxes + warpgroup * 2 * 64 * 32,
                            at.row * BM + i * 64, at.col * BN, M, N,
                            alpha, beta, warpgroup);
  }
  if (threadIdx.x % 128 == 0) wait_stores_read<0>();
}
