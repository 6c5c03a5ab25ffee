// A convolution as one matrix product, for kernels that go on with its
// sums in registers: filters [K, C*R*R] times the data matrix
// [C*R*R, N*P*Q]. A row k of that matrix is one filter tap (c, r, s), a
// column is one output pixel (n, p, q). Its tiles are made in shared
// memory as in conv/06_implicit_gemm.cu.

#include "../../conv/cuda/implicit.cuh"
#include "fusion.cuh"

// The sizes of a convolution. R * R and R are divisors, too.
struct ConvMaps : Maps {
  Magic by_RR, by_R;
};

// The window of one output pixel. (h, w) is the position of its first
// tap in a map [H, W], possibly in the padding. `offset` is that
// position in x.
struct Window {
  int h, w;
  unsigned offset;
};

__device__ inline Window find_window(int column,
                                     const ConvMaps& shape) {
  int n = divide(column, shape.by_PQ), row = divide(column, shape.by_Q);
  int p = row - n * shape.P, q = column - row * shape.Q;
  int h = p * shape.stride - shape.pad;
  int w = q * shape.stride - shape.pad;
  unsigned map = (unsigned)n * shape.C * shape.H * shape.W;
  return {h, w, map + h * shape.W + w};
}

// Adds the block's tile of the product to the sums of its threads.
// `stages` is shared memory for STAGES tiles of both matrices.
__device__ inline void add_products(float (&sum)[TM][TN],
                                    float* stages, const float* x,
                                    const float* w,
                                    const ConvMaps& shape) {
  int inner = shape.C * shape.R * shape.R;
  int columns = shape.N * shape.P * shape.Q;
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int load_a_row = threadIdx.x / KA, load_a_col = threadIdx.x % KA;
  w += (size_t)(block_row + load_a_row) * inner + load_a_col;

  // A column beyond the last one copies the last one. Its sums are
  // not stored.
  Window windows[COLUMNS];
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j)
    windows[j] =
        find_window(min(block_col + lane + 32 * j, columns - 1), shape);

  // Begins to copy the tiles that start at row k_tile of the data
  // matrix. Values in the padding become zero.
  auto load_tiles = [&](int stage, int k_tile) {
    float* tile_a = stages + stage * STAGE;
    float* tile_b = tile_a + BK * (BM + 4);
    load_filters(tile_a, w + k_tile, load_a_col, load_a_row,
                 inner - k_tile, shape.K - block_row, inner);
#pragma unroll
    for (int i = 0; i < BK; i += WARPS) {
      int k = k_tile + warp + i;
      int c = divide(k, shape.by_RR);
      int filter_tap = k - c * shape.R * shape.R;
      int r = divide(filter_tap, shape.by_R);
      int s = filter_tap - r * shape.R;
      unsigned tap_offset =
          ((unsigned)c * shape.H + r) * shape.W + s;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        bool inside =
            k < inner &&
            (unsigned)(windows[j].h + r) < (unsigned)shape.H &&
            (unsigned)(windows[j].w + s) < (unsigned)shape.W;
        copy_async<4>(tile_b + (warp + i) * BN + lane + 32 * j,
                      x + (unsigned)(windows[j].offset + tap_offset),
                      inside);
      }
    }
    close_group();
  };
  for (int i = 0; i < STAGES - 1; ++i) load_tiles(i, i * BK);

  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int k_tile = 0; k_tile < inner; k_tile += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    load_tiles(fill_stage, k_tile + (STAGES - 1) * BK);
    multiply(sum, stages + read_stage * STAGE, thread_tile());
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }
}

// Returns the map of a thread's sums in row i.
__device__ inline int map_of_row(int i) {
  return blockIdx.y * BM + thread_tile().row + i / 4 * 4 * (WM / TM) +
         i % 4;
}

// Returns the output pixel, counted over all images, of column j.
__device__ inline int pixel_of_column(int j) {
  return blockIdx.x * BN + thread_tile().col + j / 4 * 4 * (WN / TN) +
         j % 4;
}

// Returns the index in y [N, K, P, Q] of a pixel of map k.
__device__ inline size_t output_index(int k, int pixel,
                                      const ConvMaps& shape) {
  int area = shape.P * shape.Q, n = divide(pixel, shape.by_PQ);
  return (size_t)(n * (shape.K - 1) + k) * area + pixel;
}

// Calls move(i, j) for up to four neighbouring pixels, j = 0 .. 3, with
// their indices i in y. If they are adjacent and aligned there, calls
// move_four(i) for all four.
template <class Four, class One>
__device__ inline void at_pixels(int k, int pixel,
                                 const ConvMaps& shape, Four move_four,
                                 One move) {
  int area = shape.P * shape.Q, columns = shape.N * area;
  if (area % 4 == 0) {
    if (pixel < columns) move_four(output_index(k, pixel, shape));
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (pixel + j < columns)
        move(output_index(k, pixel + j, shape), j);
  }
}

// Loads the values of z [N, K, P, Q] at four neighbouring pixels.
__device__ inline void load(float (&v)[4], const float* z, int k,
                            int pixel, const ConvMaps& shape) {
  at_pixels(
      k, pixel, shape,
      [&](size_t i) {
        float4 four = *(const float4*)(z + i);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
      },
      [&](size_t i, int j) { v[j] = z[i]; });
}

// Stores values to y at four neighbouring pixels.
__device__ inline void store(float* y, const float* v, int k, int pixel,
                             const ConvMaps& shape) {
  at_pixels(
      k, pixel, shape,
      [&](size_t i) {
        *(float4*)(y + i) = make_float4(v[0], v[1], v[2], v[3]);
      },
      [&](size_t i, int j) { y[i] = v[j]; });
}
