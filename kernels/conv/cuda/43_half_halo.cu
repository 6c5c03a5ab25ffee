// A box of the input with its border is loaded once for all taps.
//
// Idea: the windows of neighbouring output pixels overlap. The box
// under TH x TW output pixels and all R x S taps has only
// TH + R - 1 rows and TW + S - 1 columns (if dilation is 1). The copy
// engine loads it once for 64 channels. For each tap wgmma reads
// another part of the box, shifted by the tap. A pixel is a row of 128
// bytes. wgmma reads groups of eight adjacent rows. The distance of
// two groups is free: here it is one row of the box. So each consumer
// computes 8 x 8 output pixels. Only tiles of the filters pass through
// the ring of stages.
// What limits it: output rows and columns beyond a multiple of 8 cost
// as much as if all 8 were there.
//
// Launch: grid (ceil(K / BN), boxes of output pixels), block 128
// threads for each 64 pixels of the tile, and the producer warp.
// Dynamic shared memory: BOXES boxes of the input, STAGES tiles of
// the filters, and two barriers for each. BM, BN, TH, TW, STAGES and
// BOXES are defines. C and K are multiples of 8; strides are 1.

#include "half_halo.cuh"

constexpr int IMAGES = BM / (TH * TW);  // of a tile
constexpr int TILE_B = BN * BK;         // elements

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) half_halo(
    const __grid_constant__ TensorMap input,    // x [N, H, W, C]
    const __grid_constant__ TensorMap filters,  // w [K, R * S, C]
    const __grid_constant__ TensorMap output,   // y [N, P, Q, K]
    Conv shape) {
  extern __shared__ __align__(1024) char shared[];
  InputBox box = input_box(shape, TH, TW, IMAGES);
  auto boxes = (Half*)shared;  // [BOXES][IMAGES, rows, columns, BK]
  auto tiles = boxes + BOXES * box.elements;     // [STAGES][BN, BK]
  auto full = (Barrier*)(tiles + STAGES * TILE_B);  // [STAGES]
  auto empty = full + STAGES;                       // [STAGES]
  auto box_full = empty + STAGES;                   // [BOXES]
  auto box_empty = box_full + BOXES;                // [BOXES]
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
    for (int i = 0; i < BOXES; ++i) {
      init_barrier(box_full + i, 1);
      init_barrier(box_empty + i, CONSUMERS);
    }
    publish_barriers();
  }
  __syncthreads();

  int taps = shape.R * shape.S;
  int stage = 0, parity = 0, at = 0, box_parity = 0;
  if (threadIdx.x / 32 == PRODUCER) {
    if (threadIdx.x % 32 != 0) return;
    for (int c = 0; c < shape.C; c += BK) {
      wait(box_empty + at, box_parity ^ 1);  // at first all are empty
      arrive_expecting(box_full + at, box.bytes);
      load_pixels(boxes + at * box.elements, &input, c,
                  q - shape.pad_w, p - shape.pad_h, n, box_full + at);
      if (++at == BOXES) at = 0, box_parity ^= 1;
      for (int tap = 0; tap < taps; ++tap) {
        wait(empty + stage, parity ^ 1);
        arrive_expecting(full + stage, TILE_B * 2);
        load_filters(tiles + stage * TILE_B, &filters, c, tap,
                     block_col, full + stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    return;
  }

  // The consumer's 8 x 8 pixels in the tile.
  int consumer = threadIdx.x / 128;
  int own_q = consumer % (TW / 8) * 8;
  int own_p = consumer / (TW / 8) % (TH / 8) * 8;
  int own_n = consumer / (TW / 8) / (TH / 8);
  int first_row = (own_n * box.rows + own_p) * box.columns + own_q;
  bool signals = threadIdx.x % 128 == 0;
  float sum[BN / 8][4];
  int last = 0, last_at = 0;  // what is still multiplied
  bool any = false;
  for (int c = 0; c < shape.C; c += BK) {
    const Half* own = boxes + at * box.elements + first_row * BK;
    wait(box_full + at, box_parity);
    for (int r = 0; r < shape.R; ++r)
      for (int s = 0; s < shape.S; ++s) {
        int row = tap_row(r, shape) * box.columns;
        const Half* under = own + (row + tap_column(s, shape)) * BK;
        const Half* tile_b = tiles + stage * TILE_B;
        wait(full + stage, parity);
        begin_products();
#pragma unroll
        for (int k = 0; k < BK; k += 16)
          multiply_rows(sum, pixels_descriptor(under + k, box.columns),
                        descriptor(tile_b + k, 0), any || k > 0);
        close_products();
        wait_products<1>();  // those of the step before have ended
        if (signals && any) {
          arrive(empty + last);
          if (r + s == 0) arrive(box_empty + last_at);
        }
        any = true;
        last = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    last_at = at;
    if (++at == BOXES) at = 0, box_parity ^= 1;
  }
  wait_products<0>();
  write_boxes(sum, boxes);
  if (!signals) return;
#pragma unroll
  for (int col = 0; col < BN; col += 64)
    store_pixels(&output, block_col + col, q + own_q, p + own_p,
                 n + own_n, boxes + col * BM + consumer * 64 * 64);
  close_stores();
  wait_stores_read<0>();
}
