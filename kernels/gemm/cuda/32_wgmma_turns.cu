// Consumers take turns: one multiplies while the other one stores.
//
// Idea: each consumer has tiles of its own, every second one of the
// block. It waits for its turn, multiplies, and passes the turn on
// before it stores. So the tensor cores do not wait for a store.
// What limits it: one consumer keeps all sums of a tile, so the tile
// is smaller, 128 x 128. For each product it reads 4 / 3 as many
// bytes from the L2 cache as a tile of 128 x 256.
//
// Launch: grid (at most BLOCKS), block 384 threads: two consumer
// warpgroups and the producer. Dynamic shared memory: STAGES times
// tile_a and tile_b, two boxes of C for each consumer, and
// 2 * STAGES + 2 barriers. BM, BN, STAGES, GROUP and FP8 are defines.

#include "wgmma_bytes.cuh"

constexpr int CONSUMERS = 2;  // warpgroups
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Registers of a thread, instead of 168 for each of 384:
constexpr int FOR_PRODUCER = 40, FOR_CONSUMER = 232;
constexpr int STAGE = (BM + BN) * ROW;  // bytes of both tiles

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wgmma_turns(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, 128]
    const __grid_constant__ TensorMap B,  // [N, K], boxes [BN, 128]
    const __grid_constant__ TensorMap C,  // [M, N], boxes [64, 32]
    int M, int N, int K) {
  extern __shared__ __align__(1024) char shared[];
  char* tiles = shared;  // [STAGES][BM, 128] and [BN, 128]
  auto boxes = (Sum*)(tiles + STAGES * STAGE);  // [2][2][64, 32]
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
  Sum sum[BM / 64][BN / 8][4];
  int steps = (K + ROW - 1) / ROW;  // of a tile, a stage each
  int first_step = warpgroup * steps;
  int turn_parity = warpgroup ^ 1;  // the first turn is consumer 0's
  for (int tile = blockIdx.x + warpgroup * gridDim.x;
       tile < rows * cols; tile += CONSUMERS * gridDim.x) {
    TilePosition at = tile_position(tile, rows, cols, GROUP);
    stage = first_step % STAGES, parity = first_step / STAGES % 2;
    first_step += CONSUMERS * steps;
    int last = 0;  // the stage that is still multiplied
    wait(turn + warpgroup, turn_parity);
    turn_parity ^= 1;
    for (int k_tile = 0; k_tile < K; k_tile += ROW) {
      char* tile_a = tiles + stage * STAGE;
      char* tile_b = tile_a + BM * ROW;
      wait(full + stage, parity);
      begin_products();
#pragma unroll
      for (int k = 0; k < ROW; k += 32)
#pragma unroll
        for (int i = 0; i < BM / 64; ++i)
          multiply_bytes(sum[i], part_of(tile_a, i * 64, k),
                         part_of(tile_b, 0, k), k_tile + k > 0);
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
      store_boxes<BN>(sum[i], &C, boxes + warpgroup * 2 * 64 * 32,
                      at.row * BM + i * 64, at.col * BN, warpgroup);
  }
  if (threadIdx.x % 128 == 0) wait_stores_read<0>();
}
