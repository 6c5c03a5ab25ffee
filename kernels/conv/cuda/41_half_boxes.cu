// The copy engine loads boxes of the input, and wgmma multiplies them.
//
// Idea: the tile of output pixels is a box: IMAGES images, TH rows, TW
// columns. The input pixels under one filter tap are a box, too. The
// copy engine (TMA) loads it: one thread gives the corner, shifted by
// the tap, and the first channel. Pixels in the padding are outside
// the input, so the engine writes zeros. With strides u and v the box
// has every u-th row and every v-th column. One warp loads tiles into
// a ring of stages. Each consumer warpgroup multiplies 64 pixels by BN
// filters.
// What limits it: boxes at the border extend beyond the output. Their
// products there are not used.
//
// Launch: grid (ceil(K / BN), boxes of output pixels), block 128
// threads for each 64 pixels of the tile, and the producer warp.
// Dynamic shared memory: STAGES times tile_a and tile_b, and
// 2 * STAGES barriers. BM, BN, TH, TW and STAGES are defines. C and K
// are multiples of 8.

#include "half_ring.cuh"

constexpr int IMAGES = BM / (TH * TW);  // of a tile

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) half_boxes(
    const __grid_constant__ TensorMap input,    // x [N, H, W, C]
    const __grid_constant__ TensorMap filters,  // w [K, R * S, C]
    const __grid_constant__ TensorMap output,   // y [N, P, Q, K]
    Conv shape) {
  extern __shared__ __align__(1024) char shared[];
  auto tiles = (Half*)shared;  // [STAGES][BM, BK] and [BN, BK]
  auto full = (Barrier*)(tiles + STAGES * STAGE);  // [STAGES]
  auto empty = full + STAGES;                      // [STAGES]
  int across = (shape.Q + TW - 1) / TW, down = (shape.P + TH - 1) / TH;
  int q = blockIdx.y % across * TW;
  int p = blockIdx.y / across % down * TH;
  int n = blockIdx.y / across / down * IMAGES;
  int block_col = blockIdx.x * BN;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + stage, 1);
      init_barrier(empty + stage, CONSUMERS);
    }
    publish_barriers();
  }
  __syncthreads();

  int steps = shape.R * shape.S * ((shape.C + BK - 1) / BK);
  if (threadIdx.x / 32 == PRODUCER) {
    if (threadIdx.x % 32 != 0) return;
    int h = p * shape.u - shape.pad_h, w = q * shape.v - shape.pad_w;
    int stage = 0, parity = 0;
    Step at = {};
    for (int step = 0; step < steps; ++step) {
      Half* tile_a = tiles + stage * STAGE;
      wait(empty + stage, parity ^ 1);  // at first all are empty
      arrive_expecting(full + stage, STAGE * 2);
      load_pixels(tile_a, &input, at.c, w + tap_column(at.s, shape),
                  h + tap_row(at.r, shape), n, full + stage);
      load_filters(tile_a + BM * BK, &filters, at.c,
                   at.r * shape.S + at.s, block_col, full + stage);
      advance(at, BK, shape);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  float sum[BN / 8][4];
  add_products(sum, tiles, full, empty, steps);
  write_boxes(sum, tiles);
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int col = 0; col < BN; col += 64)
    store_pixels(&output, block_col + col, q, p, n, tiles + col * BM);
  close_stores();
  wait_stores_read<0>();
}
