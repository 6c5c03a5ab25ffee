// Two blocks of a cluster share each tile of the filters.
//
// Idea: blocks of different pixels and the same filters load the same
// tiles. Two of them form a cluster. Each loads half of the tile, and
// the copy engine writes it to both blocks (multicast). So the L2
// cache sends half as many bytes of the filters.
// What limits it: output rows and columns beyond a multiple of 8 cost
// as much as if all 8 were there. A stage is free only when both
// blocks have read it.
//
// Launch: grid (ceil(K / BN), boxes of output pixels, made even),
// clusters of 2 along y, block 128 threads for each 64 pixels of the
// tile, and the producer warp. Dynamic shared memory: BOXES boxes of
// the input, STAGES tiles of the filters, and two barriers for each.
// BM, BN, TH, TW, STAGES and BOXES are defines. C and K are multiples
// of 8; strides are 1.

#include "half_halo.cuh"

constexpr int IMAGES = BM / (TH * TW);  // of a tile
constexpr int TILE_B = BN * BK;         // elements
constexpr int CLUSTER = 2;              // blocks
constexpr int PART = BN / CLUSTER;      // filters that a block loads

// Begins to copy BK channels from `c` on of one filter tap to the same
// place of both blocks: a box [PART, 1, BK] of the filters.
__device__ inline void load_filters_to_all(void* to,
                                           const TensorMap* map,
                                           int c, int tap, int filter,
                                           Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(c), "r"(tap), "r"(filter),
      "r"(shared_address(barrier)),
      "h"((unsigned short)((1 << CLUSTER) - 1))
      : "memory");
}

extern "C" __global__ void __cluster_dims__(1, CLUSTER, 1)
__launch_bounds__(THREADS, RESIDENT) half_halo_pair(
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
      init_barrier(empty + stage, CLUSTER * CONSUMERS);
    }
    for (int i = 0; i < BOXES; ++i) {
      init_barrier(box_full + i, 1);
      init_barrier(box_empty + i, CONSUMERS);
    }
    publish_barriers();
  }
  cluster_barrier();

  int taps = shape.R * shape.S;
  int stage = 0, parity = 0, at = 0, box_parity = 0;
  unsigned rank = cluster_rank();
  bool produces = threadIdx.x / 32 == PRODUCER;
  if (produces && threadIdx.x % 32 == 0)
    for (int c = 0; c < shape.C; c += BK) {
      wait(box_empty + at, box_parity ^ 1);  // at first all are empty
      arrive_expecting(box_full + at, box.bytes);
      load_pixels(boxes + at * box.elements, &input, c,
                  q - shape.pad_w, p - shape.pad_h, n, box_full + at);
      if (++at == BOXES) at = 0, box_parity ^= 1;
      for (int tap = 0; tap < taps; ++tap) {
        wait(empty + stage, parity ^ 1);
        arrive_expecting(full + stage, TILE_B * 2);
        load_filters_to_all(
            tiles + stage * TILE_B + rank * PART * BK, &filters, c, tap,
            block_col + rank * PART, full + stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
  if (produces) {
    cluster_barrier();  // the other block still loads to this one
    return;
  }

  // The consumer's 8 x 8 pixels in the tile.
  int consumer = threadIdx.x / 128;
  int own_q = consumer % (TW / 8) * 8;
  int own_p = consumer / (TW / 8) % (TH / 8) * 8;
  int own_n = consumer / (TW / 8) / (TH / 8);
  int first_row = (own_n * box.rows + own_p) * box.columns + own_q;
  // One thread signals each block of the cluster.
  bool signals = threadIdx.x % 128 < CLUSTER;
  unsigned to = threadIdx.x % 128;
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
          arrive_at(empty + last, to);
          if (r + s == 0 && to == 0) arrive(box_empty + last_at);
        }
        any = true;
        last = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    last_at = at;
    if (++at == BOXES) at = 0, box_parity ^= 1;
  }
  wait_products<0>();
  cluster_barrier();  // no block ends while the other one signals it
  write_boxes(sum, boxes);
  if (threadIdx.x % 128 != 0) return;
#pragma unroll
  for (int col = 0; col < BN; col += 64)
    store_pixels(&output, block_col + col, q + own_q, p + own_p,
                 n + own_n, boxes + col * BM + consumer * 64 * 64);
  close_stores();
  wait_stores_read<0>();
}
