// One block on each multiprocessor computes many tiles.
//
// Idea: BLOCKS blocks are launched, as many as there are
// multiprocessors or a few less. Each computes every BLOCKS-th tile.
// The producer goes on to the next tile while the consumers still
// multiply and store the last one. Blocks go down GROUP tiles before
// they go one tile to the right, so that blocks that run together
// share rows of A and columns of B in the L2 cache.
// What limits it: the tensor cores wait while a consumer stores its
// sums. Each lane stores 8 bytes at a time.
//
// Launch: grid (at most BLOCKS), block 384 threads: two consumer
// warpgroups and the producer. Dynamic shared memory: STAGES times
// tile_a and tile_b, and 2 * STAGES barriers. BM, BN, STAGES, GROUP
// and BF16 are defines.

#include "wgmma.cuh"

constexpr int CONSUMERS = 2;        // warpgroups
constexpr int WM = BM / CONSUMERS;  // rows of each
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Registers of a thread, instead of 168 for each of 384:
constexpr int FOR_PRODUCER = 40, FOR_CONSUMER = 232;
constexpr int STAGE = (BM + BN) * BK;  // elements of both tiles

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wgmma_persistent(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, BK]
    const __grid_constant__ TensorMap B,  // [K, N], boxes [BK, 64]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(1024) char shared[];
  auto tiles = (Half*)shared;  // [STAGES][BM, BK] and [BK, BN]
  auto full = (Barrier*)(tiles + STAGES * STAGE);  // [STAGES]
  auto empty = full + STAGES;                      // [STAGES]
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
  float sum[WM / 64][BN / 8][4];
  for (int tile = blockIdx.x; tile < rows * cols;
       tile += gridDim.x) {
    TilePosition at = tile_position(tile, rows, cols, GROUP);
    int last = 0;  // the stage that is still multiplied
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
      Half* tile_a = tiles + stage * STAGE;
      Half* tile_b = tile_a + BM * BK;
      wait(full + stage, parity);
      begin_products();
#pragma unroll
      for (int k = 0; k < BK; k += 16)
#pragma unroll
        for (int i = 0; i < WM / 64; ++i)
          multiply(sum[i],
                   part_a(tile_a, warpgroup * WM + i * 64, k),
                   part_b(tile_b, k), k_tile + k > 0);
      close_products();
      wait_products<1>();  // those of the stage before have ended
      if (threadIdx.x % 128 == 0 && k_tile > 0) arrive(empty + last);
      last = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    wait_products<0>();
    if (threadIdx.x % 128 == 0) arrive(empty + last);
#pragma unroll
    for (int i = 0; i < WM / 64; ++i)
      store_sums<BN>(sum[i], C0, C,
                     at.row * BM + warpgroup * WM + i * 64,
                     at.col * BN, M, N, alpha, beta);
  }
}
