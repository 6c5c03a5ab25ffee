// The copy engine computes the window of each pixel: its mode im2col.
//
// Idea: the rows of tile_a are BM output pixels in the order of their
// numbers, as in the data matrix of im2col. The tensor map has the
// padding, the strides and the place of the last tap. At the end of a
// row of windows the copy engine continues with the next row, and at
// the end of an image with the next image. One thread gives the window
// of the first pixel, and the tap as an offset from it. Each row of a
// tile is an output pixel. Only the last tile may have fewer.
// What limits it: each input pixel comes from the L2 cache once for
// each tap.
//
// Launch: grid (ceil(K / BN), ceil(N*P*Q / BM)), block 128 threads for
// each 64 pixels of the tile, and the producer warp. Dynamic shared
// memory: STAGES times tile_a and tile_b, and 2 * STAGES barriers. BM,
// BN and STAGES are defines. C and K are multiples of 8.

#include "half_ring.cuh"

// Begins to copy BK channels of BM pixels: those under the tap
// (tap_h, tap_w) of the windows that begin at (h, w) of image n.
__device__ inline void load_windows(void* to, const TensorMap* map,
                                   int c, int w, int h, int n,
                                   int tap_w, int tap_h,
                                   Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
      ".mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(
          shared_address(to)),
      "l"(map), "r"(c), "r"(w), "r"(h), "r"(n),
      "r"(shared_address(barrier)), "h"((unsigned short)tap_w),
      "h"((unsigned short)tap_h)
      : "memory");
}

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) half_im2col(
    const __grid_constant__ TensorMap input,    // x [N, H, W, C]
    const __grid_constant__ TensorMap filters,  // w [K, R * S, C]
    const __grid_constant__ TensorMap output,   // y [N*P*Q, K]
    Conv shape) {
  extern __shared__ __align__(1024) char shared[];
  auto tiles = (Half*)shared;  // [STAGES][BM, BK] and [BN, BK]
  auto full = (Barrier*)(tiles + STAGES * STAGE);  // [STAGES]
  auto empty = full + STAGES;                      // [STAGES]
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;

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
    OutputPixel first = output_pixel(block_row, shape);
    int h = first.p * shape.u - shape.pad_h;
    int w = first.q * shape.v - shape.pad_w;
    int stage = 0, parity = 0;
    Step at = {};
    for (int step = 0; step < steps; ++step) {
      Half* tile_a = tiles + stage * STAGE;
      wait(empty + stage, parity ^ 1);  // at first all are empty
      arrive_expecting(full + stage, STAGE * 2);
      load_windows(tile_a, &input, at.c, w, h, first.n,
                  tap_column(at.s, shape), tap_row(at.r, shape),
                  full + stage);
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
    store_box(&output, block_col + col, block_row, tiles + col * BM);
  close_stores();
  wait_stores_read<0>();
}
