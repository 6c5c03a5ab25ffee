// Hopper's own instructions: the copy engine fills the tiles, and a
// warpgroup multiplies matrices in shared memory.
//
// Idea: wgmma multiplies 64 x 16 by 16 x BN in one instruction of a
// warpgroup, 128 threads. It reads both matrices from shared memory,
// so that no thread loads fragments. One thread asks the copy engine
// (TMA) for whole boxes of A and B. It gives the tensor map, a
// position and a barrier; the engine computes all addresses, swizzles
// the rows and writes zeros outside the matrix.
// What limits it: the block waits for each tile before it multiplies.
// Only other blocks on the multiprocessor fill the time.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 128 threads for
// each 64 rows of the tile. Dynamic shared memory: tile_a, tile_b and
// a barrier. BM, BN and BF16 are defines.

#include "wgmma.cuh"

constexpr int THREADS = BM / 64 * 128;
constexpr int TILE_BYTES = (BM + BN) * BK * 2;

extern "C" __global__ void __launch_bounds__(THREADS) wgmma(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, BK]
    const __grid_constant__ TensorMap B,  // [K, N], boxes [BK, 64]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(1024) char shared[];
  auto tile_a = (Half*)shared;     // [BM, BK]
  auto tile_b = tile_a + BM * BK;  // [BK, BN]
  auto full = (Barrier*)(tile_b + BK * BN);
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  int group_row = threadIdx.x / 128 * 64;  // of the warpgroup

  if (threadIdx.x == 0) {
    init_barrier(full, 1);
    publish_barriers();
  }
  __syncthreads();

  float sum[BN / 8][4];
  int parity = 0;
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
    if (threadIdx.x == 0) {
      arrive_expecting(full, TILE_BYTES);
      load_box(tile_a, &A, k_tile, block_row, full);
#pragma unroll
      for (int n = 0; n < BN; n += 64)
        load_box(tile_b + n * BK, &B, block_col + n, k_tile, full);
    }
    wait(full, parity);
    parity ^= 1;
    begin_products();
#pragma unroll
    for (int k = 0; k < BK; k += 16)
      multiply(sum, part_a(tile_a, group_row, k), part_b(tile_b, k),
               k_tile + k > 0);
    close_products();
    wait_products<0>();
    __syncthreads();  // all warpgroups have read the tiles
  }
  store_sums<BN>(sum, C0, C, block_row + group_row, block_col, M, N,
                 alpha, beta);
}
