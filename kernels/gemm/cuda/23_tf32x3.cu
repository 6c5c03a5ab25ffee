// FP32 accuracy from the tensor cores: three products of TF32.
//
// Idea: another algorithm. TF32 keeps 10 bits of the fraction, FP32
// has 23. Each factor is the sum of two TF32 numbers: x = big + small.
// Then a b is nearly a_big b_big + a_big b_small + a_small b_big. The
// fourth product, a_small b_small, is about 2^-22 of the first one and
// is left out. wgmma needs the rows of B along k, but B is [K, N]. So
// a warpgroup transposes the tile of B while it splits it. Consumers
// split A in registers, which wgmma may read directly. Tensor cores
// truncate their sums, so a sum of many products loses digits. The
// products of one tile are summed there. The consumers then add these
// sums to others in their registers, rounded as FP32 is.
// The result is as exact as that of FP32, except at the ends of its
// range: an infinite factor gives NaN.
// What limits it: the tensor cores do three times the work. In large
// products an H100 reaches its power limit and lowers its clock.
//
// Launch: grid (ceil(M / BM) * ceil(N / BN)), block 384 threads: two
// consumer warpgroups, and one that copies and splits. Dynamic shared
// memory: 2 tiles of B as they arrive, then STAGES times tile_a and
// two tiles of B, and 2 * STAGES + 2 barriers. BM, BN, STAGES and
// GROUP are defines. K and N are multiples of 4.

#include "tf32.cuh"
#include "tile_order.cuh"

constexpr int BK = 32;              // a row of tile_a is 128 bytes
constexpr int CONSUMERS = 2;        // warpgroups
constexpr int WM = BM / CONSUMERS;  // rows of each
constexpr int PARTS = WM / 64;      // products along these rows
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Registers of a thread, instead of 168 for each of 384:
constexpr int FOR_PRODUCER = 24, FOR_CONSUMER = 240;
constexpr int RAW = 2;                     // tiles of B not split yet
constexpr int STAGE = (BM + 2 * BN) * BK;  // floats

// Splits tile_b [BK, BN] into big and small. Both are [BN, BK], their
// rows swizzled. A thread writes four neighbours along k at once.
__device__ inline void split_b(const float* tile_b, float* big,
                               float* small) {
#pragma unroll 2
  for (int i = threadIdx.x % 128; i < BN * BK / 4; i += 128) {
    int n = i % BN, piece = i / BN;  // piece: four of k
    uint4 high, low;
    const float* x = tile_b + piece * 4 * BN + n;
    split(x[0 * BN], high.x, low.x);
    split(x[1 * BN], high.y, low.y);
    split(x[2 * BN], high.z, low.z);
    split(x[3 * BN], high.w, low.w);
    int to = n * BK + (piece ^ n % 8) * 4;
    *(uint4*)&big[to] = high;
    *(uint4*)&small[to] = low;
  }
}

// The part of a split tile of B that one product reads, from k on.
__device__ inline unsigned long long part_b(const float* tile,
                                            int k) {
  return descriptor((const Half*)(tile + k), 0);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tf32x3(
    const __grid_constant__ TensorMap A,  // [M, K], boxes [BM, BK]
    const __grid_constant__ TensorMap B,  // [K, N], boxes [BK, BN]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(1024) char shared[];
  auto raw = (float*)shared;         // [RAW][BK, BN]
  auto tiles = raw + RAW * BK * BN;  // [STAGES][BM, BK], 2 x [BN, BK]
  auto full = (Barrier*)(tiles + STAGES * STAGE);  // [STAGES]
  auto empty = full + STAGES;                      // [STAGES]
  auto arrived = empty + STAGES;                   // [RAW]
  TilePosition at = tile_position(blockIdx.x, (M + BM - 1) / BM,
                                  (N + BN - 1) / BN, GROUP);
  int block_row = at.row * BM, block_col = at.col * BN;
  int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + stage, 1 + 128);  // the copy, producers
      init_barrier(empty + stage, 128 * CONSUMERS);
    }
    for (int slot = 0; slot < RAW; ++slot)
      init_barrier(arrived + slot, 1);
    publish_barriers();
  }
  __syncthreads();

  int stage = 0, parity = 0;
  if (warpgroup == CONSUMERS) {  // copies and splits
    release_registers<FOR_PRODUCER>();
    bool starts_copies = threadIdx.x % 128 == 0;
    auto copy_b = [&](int k_tile) {
      int slot = k_tile / BK % RAW;
      arrive_expecting(arrived + slot, BK * BN * 4);
      load_box(raw + slot * BK * BN, &B, block_col, k_tile,
               arrived + slot);
    };
    if (starts_copies) copy_b(0);
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
      float* tile_a = tiles + stage * STAGE;
      float* big = tile_a + BM * BK;
      int slot = k_tile / BK % RAW;
      warpgroup_barrier(warpgroup);  // the tile before was split
      if (starts_copies && k_tile + BK < K) copy_b(k_tile + BK);
      wait(empty + stage, parity ^ 1);  // at first all are empty
      if (starts_copies) {
        arrive_expecting(full + stage, BM * BK * 4);
        load_box(tile_a, &A, k_tile, block_row, full + stage);
      }
      wait(arrived + slot, k_tile / BK / RAW % 2);
      split_b(raw + slot * BK * BN, big, big + BN * BK);
      publish_writes();
      arrive(full + stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  take_registers<FOR_CONSUMER>();
  float sum[PARTS][BN / 8][4] = {};
  float part[BN / 8][4];  // the sums of one tile and 64 rows
  // The row of the lane's first element. Its rows are 8 apart.
  int row = warpgroup * WM + threadIdx.x % 128 / 32 * 16 + lane / 4;
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
    float* tile_a = tiles + stage * STAGE;
    float* big = tile_a + BM * BK;
    float* small = big + BN * BK;
    wait(full + stage, parity);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
#pragma unroll
      for (int k = 0; k < BK; k += 8) {
        unsigned a_big[4], a_small[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          int m = row + i * 64 + n % 2 * 8, piece = k / 4 + n / 2;
          split(tile_a[m * BK + (piece ^ lane / 4) * 4 + lane % 4],
                a_big[n], a_small[n]);
        }
        begin_products();
        multiply_tf32(part, a_small, part_b(big, k), k > 0);
        multiply_tf32(part, a_big, part_b(small, k), 1);
        multiply_tf32(part, a_big, part_b(big, k), 1);
        close_products();
        wait_products<1>();  // those of the k before have ended
      }
      wait_products<0>();
#pragma unroll
      for (int j = 0; j < BN / 8; ++j)
#pragma unroll
        for (int n = 0; n < 4; ++n) sum[i][j][n] += part[j][n];
    }
    arrive(empty + stage);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
#pragma unroll
  for (int i = 0; i < PARTS; ++i)
    store_sums<BN>(sum[i], C0, C, block_row + warpgroup * WM + i * 64,
                   block_col, M, N, alpha, beta);
}
