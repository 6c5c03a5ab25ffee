// The blocks of a cluster share the channels of a tile's sum.
//
// Idea: late layers have few pixels and many channels: too few tiles
// for all multiprocessors, each with a long sum. SPLIT blocks form a
// cluster and compute one tile. Each loads every SPLIT-th part of 64
// channels. At the end each block adds up its share of the rows: it
// reads the sums of the others from their shared memory.
// What limits it: the sums of a tile are written to shared memory and
// read once more, in FP32.
//
// Launch: grid (ceil(K / BN), boxes of output pixels, SPLIT), clusters
// of SPLIT along z, block 128 threads for each 64 pixels of the tile,
// and the producer warp. Dynamic shared memory: BOXES boxes of the
// input, STAGES tiles of the filters, and two barriers for each; at
// least the sums of a tile. BM, BN, TH, TW, STAGES, BOXES and SPLIT
// are defines. C and K are multiples of 8; strides are 1. SPLIT is at
// most ceil(C / 64).

#include "half_halo.cuh"

constexpr int IMAGES = BM / (TH * TW);  // of a tile
constexpr int TILE_B = BN * BK;         // elements

// The place of a row of the tile in the box of output pixels.
struct Place {
  int n, p, q;
};

// Each 64 rows are 8 x 8 pixels.
__device__ inline Place place_in_tile(int row) {
  int square = row / 64;
  return {square / (TW / 8) / (TH / 8),
          square / (TW / 8) % (TH / 8) * 8 + row % 64 / 8,
          square % (TW / 8) * 8 + row % 8};
}

// The place of a sum among those of a tile [BM, BN]. The row changes
// the order of eight columns, so that lanes use different banks.
__device__ inline int sum_index(int row, int col) {
  return row * BN + (col ^ row % 8 * 8);
}

// Writes the sums of all consumers to shared memory. The boxes and
// tiles there are no longer needed.
__device__ inline void write_sums(const float (&sum)[BN / 8][4],
                                  float* sums) {
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  int col = threadIdx.x % 4 * 2;
  consumers_barrier();  // all consumers have read the last tiles
#pragma unroll
  for (int j = 0; j < BN / 8; ++j)
#pragma unroll
    for (int both = 0; both < 2; ++both)  // 8 rows apart
      *(float2*)&sums[sum_index(row + both * 8, j * 8 + col)] =
          make_float2(sum[j][both * 2], sum[j][both * 2 + 1]);
}

// Loads four floats from the same place of another block's memory.
__device__ inline float4 load_from(unsigned block,
                                   const float* from) {
  float4 values;
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
      : "=f"(values.x), "=f"(values.y), "=f"(values.z),
        "=f"(values.w)
      : "r"(shared_address(from)), "r"(block)
      : "memory");
  return values;
}

// Adds up eight neighbouring sums of all blocks, rounded to FP16.
__device__ inline uint4 add_up(const float* sums) {
  float4 low = {}, high = {};
#pragma unroll
  for (int block = 0; block < SPLIT; ++block) {
    float4 a = load_from(block, sums);
    float4 b = load_from(block, sums + 4);
    low.x += a.x, low.y += a.y, low.z += a.z, low.w += a.w;
    high.x += b.x, high.y += b.y, high.z += b.z, high.w += b.w;
  }
  return {pair(low.x, low.y), pair(low.z, low.w),
          pair(high.x, high.y), pair(high.z, high.w)};
}

extern "C" __global__ void __cluster_dims__(1, 1, SPLIT)
__launch_bounds__(THREADS, RESIDENT) half_halo_split(
    const __grid_constant__ TensorMap input,    // x [N, H, W, C]
    const __grid_constant__ TensorMap filters,  // w [K, R * S, C]
    Half* __restrict__ output,                  // y [N, P, Q, K]
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
  int first_c = blockIdx.z * BK;  // of this block's channels
  int stage = 0, parity = 0, at = 0, box_parity = 0;
  if (threadIdx.x / 32 == PRODUCER) {
    bool one = threadIdx.x % 32 == 0;
    for (int c = first_c; one && c < shape.C; c += SPLIT * BK) {
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
    cluster_barrier();
    cluster_barrier();
    return;
  }

  Place own_place = place_in_tile(threadIdx.x / 128 * 64);
  int first_row =
      (own_place.n * box.rows + own_place.p) * box.columns +
      own_place.q;
  bool signals = threadIdx.x % 128 == 0;
  float sum[BN / 8][4];
  int last = 0, last_at = 0;  // what is still multiplied
  bool any = false;
  for (int c = first_c; c < shape.C; c += SPLIT * BK) {
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
  auto sums = (float*)shared;  // [BM, BN]
  write_sums(sum, sums);
  cluster_barrier();  // the sums of all blocks are complete

  // This block stores BM / SPLIT rows, 8 filters in each thread.
  constexpr int PIECES = BM / SPLIT * BN / 8;
  for (int i = threadIdx.x; i < PIECES; i += 128 * CONSUMERS) {
    int row = blockIdx.z * (BM / SPLIT) + i / (BN / 8);
    int col = i % (BN / 8) * 8;
    Place place = place_in_tile(row);
    int at_n = n + place.n, at_p = p + place.p, at_q = q + place.q;
    bool inside = at_n < shape.N && at_p < shape.P &&
                  at_q < shape.Q && block_col + col < shape.K;
    if (!inside) continue;
    size_t pixel = ((size_t)at_n * shape.P + at_p) * shape.Q + at_q;
    *(uint4*)&output[pixel * shape.K + block_col + col] =
        add_up(&sums[sum_index(row, col)]);
  }
  cluster_barrier();  // no block ends while another one reads its sums
}
