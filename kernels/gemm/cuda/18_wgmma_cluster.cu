// Two blocks share a tile of B through their cluster.
//
// Idea: a cluster is two blocks that run at the same time and reach
// each other's shared memory. Their tiles are one above the other:
// they need the same columns of B. Each loads half of them, and the
// copy engine writes that half into both blocks (multicast). A block
// then reads 32 KiB from the L2 cache for each stage, not 48. A stage
// is empty when the consumers of both blocks have read it.
// What limits it: power, as before. Where the L2 cache keeps up, as
// with this order of tiles, fewer reads save no time.
//
// Launch: grid (at most BLOCKS, a multiple of 2), block 384 threads:
// two consumer warpgroups and the producer. Dynamic shared memory:
// STAGES times tile_a and tile_b, two boxes of C for each consumer,
// and 2 * STAGES barriers. BM, BN, STAGES, GROUP and BF16 are defines.

#include "wgmma.cuh"

constexpr int CLUSTER = 2;          // blocks, one above the other
constexpr int CONSUMERS = 2;        // warpgroups
constexpr int WM = BM / CONSUMERS;  // rows of each
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Registers of a thread, instead of 168 for each of 384:
constexpr int FOR_PRODUCER = 40, FOR_CONSUMER = 232;
constexpr int STAGE = (BM + BN) * BK;  // elements of both tiles

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
__launch_bounds__(THREADS, 1)
wgmma_cluster(
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
  // The cluster's tiles, of CLUSTER * BM x BN:
  int rows = (M + CLUSTER * BM - 1) / (CLUSTER * BM);
  int cols = (N + BN - 1) / BN;
  int first_tile = blockIdx.x / CLUSTER;
  int clusters = gridDim.x / CLUSTER;
  int rank = cluster_rank();  // of the block
  int warpgroup = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + stage, 1);
      init_barrier(empty + stage, CLUSTER * CONSUMERS);
    }
    publish_barriers();
  }
  cluster_barrier();

  int stage = 0, parity = 0;
  if (warpgroup == CONSUMERS) {  // the producer
    release_registers<FOR_PRODUCER>();
    if (threadIdx.x % 128 == 0) {
      for (int tile = first_tile; tile < rows * cols;
           tile += clusters) {
        TilePosition at = tile_position(tile, rows, cols, GROUP);
        int row = (at.row * CLUSTER + rank) * BM;
        for (int k_tile = 0; k_tile < K; k_tile += BK) {
          Half* tile_a = tiles + stage * STAGE;
          Half* tile_b = tile_a + BM * BK;
          wait(empty + stage, parity ^ 1);  // at first all are empty
          arrive_expecting(full + stage, STAGE * 2);
          load_box(tile_a, &A, k_tile, row, full + stage);
#pragma unroll
          for (int n = 0; n < BN / CLUSTER; n += 64) {
            int col = rank * (BN / CLUSTER) + n;
            load_box_to((1 << CLUSTER) - 1, tile_b + col * BK, &B,
                        at.col * BN + col, k_tile, full + stage);
          }
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
    cluster_barrier();  // the other block may still arrive here
    return;
  }

  take_registers<FOR_CONSUMER>();
  float sum[WM / 64][BN / 8][4];
  for (int tile = first_tile; tile < rows * cols;
       tile += clusters) {
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
      if (threadIdx.x % 128 < CLUSTER && k_tile > 0)
        arrive_at(empty + last, threadIdx.x % 128);
      last = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    wait_products<0>();
    if (threadIdx.x % 128 < CLUSTER)
      arrive_at(empty + last, threadIdx.x % 128);
#pragma unroll
    for (int i = 0; i < WM / 64; ++i)
      store_boxes<BN>(sum[i], C0, &C,
                      boxes + warpgroup * 2 * 64 * 32,
                      (at.row * CLUSTER + rank) * BM +
                          warpgroup * WM + i * 64,
                      at.col * BN, M, N, alpha, beta, warpgroup);
  }
  if (threadIdx.x % 128 == 0) wait_stores_read<0>();
  cluster_barrier();
}
