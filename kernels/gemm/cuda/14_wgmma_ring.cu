// Tiles are loaded ahead by a warpgroup that does nothing else.
//
// Idea: shared memory contains a ring of STAGES tiles. One thread of
// the producer warpgroup fills it. The consumer warpgroup multiplies.
// Each stage has two barriers: `full` ends a phase when the copies
// have arrived, `empty` when the consumer has read the stage. So
// loads, products and waits overlap, and no thread waits for the
// whole block.
// What limits it: a tile of 128 x 128 needs 64 bytes of L2 for each
// clock of the tensor cores. The L2 cache delivers about half.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 256 threads: a
// consumer warpgroup and the producer. Dynamic shared memory: STAGES
// times tile_a and tile_b, and 2 * STAGES barriers. BM, BN, STAGES and
// BF16 are defines.

#include "wgmma.cuh"

constexpr int CONSUMERS = 1;        // warpgroups
constexpr int WM = BM / CONSUMERS;  // rows of each
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int STAGE = (BM + BN) * BK;  // elements of both tiles

extern "C" __global__ void __launch_bounds__(THREADS) wgmma_ring(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, BK]
    const __grid_constant__ TensorMap B,  // [K, N], boxes [BK, 64]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(1024) char shared[];
  auto tiles = (Half*)shared;  // [STAGES][BM, BK] and [BK, BN]
  auto full = (Barrier*)(tiles + STAGES * STAGE);  // [STAGES]
  auto empty = full + STAGES;                      // [STAGES]
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
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
    if (threadIdx.x % 128 != 0) return;
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
      Half* tile_a = tiles + stage * STAGE;
      Half* tile_b = tile_a + BM * BK;
      wait(empty + stage, parity ^ 1);  // at first all are empty
      arrive_expecting(full + stage, STAGE * 2);
      load_box(tile_a, &A, k_tile, block_row, full + stage);
#pragma unroll
      for (int n = 0; n < BN; n += 64)
        load_box(tile_b + n * BK, &B, block_col + n, k_tile,
                 full + stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  float sum[WM / 64][BN / 8][4];
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
        multiply(sum[i], part_a(tile_a, warpgroup * WM + i * 64, k),
                 part_b(tile_b, k), k_tile + k > 0);
    close_products();
    wait_products<1>();  // the products of the stage before have ended
    if (threadIdx.x % 128 == 0 && k_tile > 0) arrive(empty + last);
    last = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  wait_products<0>();
#pragma unroll
  for (int i = 0; i < WM / 64; ++i)
    store_sums<BN>(sum[i], C0, C, block_row + warpgroup * WM + i * 64,
                   block_col, M, N, alpha, beta);
}
