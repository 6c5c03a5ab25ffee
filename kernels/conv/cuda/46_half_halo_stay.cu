// The filters stay in shared memory while a block computes many tiles.
//
// Idea: early layers have many pixels and few channels. Their filters
// fit into shared memory. Each multiprocessor has one block, which
// loads BN filters with all taps once. Then only boxes of the input
// pass through the ring. A consumer computes 8 x 8 pixels by itself:
// it waits for one box, begins the products of all taps, and stores
// its results while the other consumers multiply.
// What limits it: wgmma reads both matrices from shared memory. With
// 64 filters that takes as long as the products.
//
// Launch: grid (ceil(K / BN), blocks for the squares of 8 x 8 pixels),
// block 128 threads for each consumer, BM / 64 of them, and the
// producer warp. Dynamic shared memory: the filters, BOXES boxes of
// the input, a box of results for each consumer, and the barriers. BM,
// BN and BOXES are defines. C and K are multiples of 8; strides are 1.

#include "half_halo.cuh"

constexpr int TILE_B = BN * BK;    // elements of a tap of filters
constexpr int RESULTS = 64 * BN;  // elements of a consumer's results

// The first output pixel of a square of 8 x 8.
__device__ inline OutputPixel first_pixel(int square,
                                          const Conv& shape) {
  int across = (shape.Q + 7) / 8, down = (shape.P + 7) / 8;
  int row = square / across;
  return {row / down, row % down * 8, square % across * 8};
}

// A place in the ring of boxes, and the parity of its phase.
struct RingPlace {
  int at, parity;
};

__device__ inline RingPlace ring_place(int number) {
  return {number % BOXES, number / BOXES % 2};
}

// Rounds a consumer's sums to FP16 and stores them through boxes
// [64, 64] in shared memory, whose rows are swizzled.
__device__ inline void store_square(const float (&sum)[BN / 8][4],
                                    Half* results,
                                    const TensorMap* output,
                                    int filter, OutputPixel first,
                                    int consumer) {
  int thread = threadIdx.x % 128;
  int row = thread / 32 * 16 + thread % 32 / 4, col = thread % 4 * 2;
  if (thread == 0) wait_stores_read<0>();
  warpgroup_barrier(consumer);  // the results can be overwritten
#pragma unroll
  for (int j = 0; j < BN / 8; ++j)
#pragma unroll
    for (int both = 0; both < 2; ++both) {  // 8 rows apart
      Half* box_row = results + (j / 8 * 64 + row + both * 8) * 64;
      *(unsigned*)&box_row[(j % 8 * 8 ^ row % 8 * 8) + col] =
          pair(sum[j][both * 2], sum[j][both * 2 + 1]);
    }
  publish_writes();
  warpgroup_barrier(consumer);  // the results are complete
  if (thread != 0) return;
#pragma unroll
  for (int part = 0; part < BN / 64; ++part)
    store_pixels(output, filter + part * 64, first.q, first.p,
                 first.n, results + part * 64 * 64);
  close_stores();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
half_halo_stay(
    const __grid_constant__ TensorMap input,    // x [N, H, W, C]
    const __grid_constant__ TensorMap filters,  // w [K, R * S, C]
    const __grid_constant__ TensorMap output,   // y [N, P, Q, K]
    Conv shape) {
  extern __shared__ __align__(1024) char shared[];
  InputBox box = input_box(shape, 8, 8, 1);
  int taps = shape.R * shape.S, parts = (shape.C + BK - 1) / BK;
  auto tiles = (Half*)shared;  // [parts, taps][BN, BK]
  auto boxes = tiles + parts * taps * TILE_B;  // [BOXES]
  auto results = boxes + BOXES * box.elements;  // [CONSUMERS][64, BN]
  auto full = (Barrier*)(results + CONSUMERS * RESULTS);  // [BOXES]
  auto empty = full + BOXES;                              // [BOXES]
  auto filters_full = empty + BOXES;
  int squares = shape.N * ((shape.P + 7) / 8) * ((shape.Q + 7) / 8);
  int block_col = blockIdx.x * BN;
  // All consumers compute as many squares. Those beyond the last image
  // are zeros and are not stored.
  int rounds = (squares + CONSUMERS * gridDim.y - 1) /
               (CONSUMERS * gridDim.y);

  if (threadIdx.x == 0) {
    for (int i = 0; i < BOXES; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, 1);
    }
    init_barrier(filters_full, 1);
    publish_barriers();
  }
  __syncthreads();

  if (threadIdx.x / 32 == PRODUCER) {
    if (threadIdx.x % 32 != 0) return;
    arrive_expecting(filters_full, parts * taps * TILE_B * 2);
    for (int i = 0; i < parts * taps; ++i)
      load_filters(tiles + i * TILE_B, &filters, i / taps * BK,
                   i % taps, block_col, filters_full);
    int number = 0;  // of the next box
    for (int turn = 0; turn < rounds * CONSUMERS; ++turn) {
      OutputPixel first =
          first_pixel(blockIdx.y + turn * gridDim.y, shape);
      for (int c = 0; c < shape.C; c += BK, ++number) {
        RingPlace place = ring_place(number);
        wait(empty + place.at, place.parity ^ 1);
        arrive_expecting(full + place.at, box.bytes);
        load_pixels(boxes + place.at * box.elements, &input, c,
                    first.q - shape.pad_w, first.p - shape.pad_h,
                    first.n, full + place.at);
      }
    }
    return;
  }

  int consumer = threadIdx.x / 128;
  Half* own_results = results + consumer * RESULTS;
  float sum[BN / 8][4];
  wait(filters_full, 0);
  for (int round = 0; round < rounds; ++round) {
    int turn = round * CONSUMERS + consumer;
    const Half* tile_b = tiles;
    for (int part = 0; part < parts; ++part) {
      RingPlace place = ring_place(turn * parts + part);
      const Half* own = boxes + place.at * box.elements;
      wait(full + place.at, place.parity);
      for (int r = 0; r < shape.R; ++r)
        for (int s = 0; s < shape.S; ++s) {
          int row = tap_row(r, shape) * box.columns;
          const Half* under = own + (row + tap_column(s, shape)) * BK;
          begin_products();
#pragma unroll
          for (int k = 0; k < BK; k += 16)
            multiply_rows(sum,
                          pixels_descriptor(under + k, box.columns),
                          descriptor(tile_b + k, 0),
                          part + r + s + k > 0);
          close_products();
          tile_b += TILE_B;
        }
      wait_products<0>();
      if (threadIdx.x % 128 == 0) arrive(empty + place.at);
    }
    store_square(sum, own_results, &output, block_col,
                 first_pixel(blockIdx.y + turn * gridDim.y, shape),
                 consumer);
  }
  if (threadIdx.x % 128 == 0) wait_stores_read<0>();
}
