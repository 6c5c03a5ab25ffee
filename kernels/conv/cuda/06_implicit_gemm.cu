// Implicit GEMM: convolution as one matrix product. The data matrix
// is not stored in memory.
//
// Idea: a row k of im2col's data matrix is one filter tap (c, r, s). A
// column is one output pixel (n, p, q). A block therefore copies the
// elements of a tile directly from the input to shared memory.
// Elements in the padding become zero. Meanwhile the block multiplies
// the previous tile. A thread always copies the same columns, so it
// computes their windows once. Row k changes at every step and is
// split into (c, r, s) again. All lanes of a warp have the same k. Each
// division is a multiplication and a shift (magic.cuh).
// What limits it: four bytes per copy; a stored matrix would allow
// 16. Each copy computes an address and tests the borders.
//
// Launch: grid (ceil(N*P*Q / BN), ceil(K / groups / BM), groups),
// block (BM / TM) * (BN / TN); dynamic shared memory for STAGES
// tiles. BM, BN, BK, TM, TN and STAGES are defines.

#include "implicit.cuh"
#include "../../cuda/magic.cuh"

// The numbers to divide by: R * S, S, P * Q, Q.
struct Divisors {
  Magic filter_area, S, output_area, Q;
};

// The window of one output pixel. (h, w) is the position of its first
// tap in a channel [H, W], possibly in the padding. `offset` is that
// position in the input.
struct Window {
  int h, w;
  unsigned offset;
};

__device__ inline Window find_window(int column, const Conv& shape,
                                     const Divisors& divisors) {
  int output_area = shape.P * shape.Q;
  int n = divide(column, divisors.output_area);
  int output_pixel = column - n * output_area;
  int p = divide(output_pixel, divisors.Q);
  int q = output_pixel - p * shape.Q;
  int h = p * shape.u - shape.pad_h, w = q * shape.v - shape.pad_w;
  if (shape.flip) {  // the first tap is the last corner
    h += (shape.R - 1) * shape.dilation_h;
    w += (shape.S - 1) * shape.dilation_w;
  }
  return {h, w,
          (unsigned)n * shape.C * shape.H * shape.W + h * shape.W + w};
}

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) implicit_gemm(
    const float* __restrict__ input,    // x [N, C, H, W]
    const float* __restrict__ filters,  // w [K, C / groups, R, S]
    const float* __restrict__ bias,     // b [K], or unused
    float* __restrict__ output,         // y [N, K, P, Q]
    Conv shape, Layer layer, Divisors divisors) {
  extern __shared__ __align__(16) float stages[];
  int group_C = shape.C / layer.groups;  // channels of one group
  int rows = shape.K / layer.groups;     // filters of one group
  int filter_area = shape.R * shape.S, inner = group_C * filter_area;
  int output_area = shape.P * shape.Q;
  int columns = shape.N * output_area;
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  input += (size_t)blockIdx.z * group_C * shape.H * shape.W;
  int load_a_row = threadIdx.x / KA, load_a_col = threadIdx.x % KA;
  filters +=
      ((size_t)blockIdx.z * rows + block_row + load_a_row) * inner +
      load_a_col;
  output += (size_t)blockIdx.z * rows * output_area;
  if (layer.bias) bias += blockIdx.z * rows;

  // A column beyond the last one copies the last one. Its sums are
  // not stored.
  Window windows[COLUMNS];
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j)
    windows[j] = find_window(
        min(block_col + lane + 32 * j, columns - 1), shape, divisors);
  int tap_step_h = shape.flip ? -shape.dilation_h : shape.dilation_h;
  int tap_step_w = shape.flip ? -shape.dilation_w : shape.dilation_w;

  // Begins to copy the tiles that start at row k_tile of the data
  // matrix.
  auto load_tiles = [&](int stage, int k_tile) {
    float* tile_a = stages + stage * STAGE;
    float* tile_b = tile_a + BK * (BM + 4);
    load_filters(tile_a, filters + k_tile, load_a_col, load_a_row,
                 inner - k_tile, rows - block_row, inner);
#pragma unroll
    for (int i = 0; i < BK; i += WARPS) {
      int k = k_tile + warp + i;
      int c = divide(k, divisors.filter_area);
      int filter_tap = k - c * filter_area;
      int r = divide(filter_tap, divisors.S);
      int s = filter_tap - r * shape.S;
      int tap_h = r * tap_step_h, tap_w = s * tap_step_w;
      unsigned tap_offset = (unsigned)c * shape.H * shape.W +
                            tap_h * shape.W + tap_w;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        bool inside =
            k < inner &&
            (unsigned)(windows[j].h + tap_h) < (unsigned)shape.H &&
            (unsigned)(windows[j].w + tap_w) < (unsigned)shape.W;
        copy_async<4>(tile_b + (warp + i) * BN + lane + 32 * j,
                      input + (unsigned)(windows[j].offset + tap_offset),
                      inside);
      }
    }
    close_group();
  };
  for (int i = 0; i < STAGES - 1; ++i) load_tiles(i, i * BK);

  ThreadTile thread = thread_tile();
  auto output_offset = [&](int column) {
    int n = divide(column, divisors.output_area);
    return (size_t)n * (shape.K - 1) * output_area + column;
  };
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int k_tile = 0; k_tile < inner;) {
    bool first_part = k_tile == 0;
    int part_end = min(k_tile + PART, inner);
    float sum[TM][TN] = {};
#pragma unroll 1
    for (; k_tile < part_end; k_tile += BK) {
      wait_groups<STAGES - 2>();
      __syncthreads();
      load_tiles(fill_stage, k_tile + (STAGES - 1) * BK);
      multiply(sum, stages + read_stage * STAGE, thread);
      read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
      fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
    }
    bool last_part = part_end == inner;
    if (output_area % 4 == 0)
      store<4>(output, bias, sum, block_row + thread.row,
               block_col + thread.col, rows, columns, output_area,
               layer, first_part, last_part, output_offset);
    else
      store<1>(output, bias, sum, block_row + thread.row,
               block_col + thread.col, rows, columns, output_area,
               layer, first_part, last_part, output_offset);
  }
}
