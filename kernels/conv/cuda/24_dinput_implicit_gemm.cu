// Gradient of the input as an implicit matrix product, phase by phase.
//
// Idea: with stride 2 an even row and an odd row of the input are read
// through different taps. Pixels whose row and column have the same
// remainders form a phase. All pixels of a phase are read through the
// same taps, and neighbours of a phase through neighbouring outputs.
// So each phase is a convolution of stride 1 without holes: filters
// [C / groups, taps] times a data matrix of output gradients
// [taps, pixels]. It is multiplied as in 06_implicit_gemm.cu, and the
// data matrix is not stored in memory. Stride 1 has one phase.
// What limits it: four bytes per copy. With stride 2 the phases have
// different numbers of taps, so their blocks do not end together.
//
// Launch: grid (ceil(N * pixels of the first phase / BN),
// ceil(C / groups / BM), groups * phases), block (BM / TM) * (BN / TN);
// dynamic shared memory for STAGES tiles. BM, BN, BK, TM, TN and
// STAGES are defines.

#include "implicit.cuh"
#include "../../cuda/magic.cuh"

// The phases, and the distances between taps that belong to one phase.
struct Phases {
  int across;                  // phases along a row of the input
  int tap_step_h, tap_step_w;  // in filter rows and columns
  int output_step_h, output_step_w;  // in output rows and columns
};

// One axis of a phase.
struct Axis {
  int first, pixels;     // first input row, and how many
  int first_tap, taps;   // first filter row, and how many
  int first_output;      // output row of the first pixel, first tap
};

__device__ inline Axis find_axis(int first, int extent, int stride,
                                 int pad, int dilation, int filter_taps,
                                 int tap_step) {
  int remainder = (first + pad) % stride, tap = 0;
  int end = min(filter_taps, tap_step);
  while (tap < end && tap * dilation % stride != remainder) ++tap;
  int taps = tap < end ? (filter_taps - 1 - tap) / tap_step + 1 : 0;
  return {first, (extent - 1 - first) / stride + 1, tap, taps,
          (first + pad - tap * dilation) / stride};
}

// Returns the multiplier and the shift of a number to divide by, as
// kernels/model/fast_division.py does.
__device__ inline Magic find_magic(int divisor) {
  int shift = 32 - __clz(divisor - 1);
  unsigned long long power = 1ull << (31 + shift);
  return {(unsigned)((power + divisor - 1) / divisor), shift};
}

// The output pixel under the first tap of an input pixel. It may lie
// outside the output. `offset` is its position in the gradient.
struct Window {
  int p, q;
  unsigned offset;
};

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) dinput_implicit_gemm(
    const float* __restrict__ output_gradient,  // dy [N, K, P, Q]
    const float* __restrict__ filters,  // w [K, C / groups, R, S]
    float* __restrict__ input_gradient,         // dx [N, C, H, W]
    Conv shape, Layer layer, Phases phases) {
  extern __shared__ __align__(16) float stages[];
  int rows = shape.C / layer.groups;     // channels of one group
  int group_K = shape.K / layer.groups;  // filters of one group
  int phase_count = gridDim.z / layer.groups;
  int group = blockIdx.z / phase_count, phase = blockIdx.z % phase_count;
  Axis vertical = find_axis(phase / phases.across, shape.H, shape.u,
                            shape.pad_h, shape.dilation_h, shape.R,
                            phases.tap_step_h);
  Axis horizontal = find_axis(phase % phases.across, shape.W, shape.v,
                              shape.pad_w, shape.dilation_w, shape.S,
                              phases.tap_step_w);
  int taps = vertical.taps * horizontal.taps, inner = group_K * taps;
  int phase_area = vertical.pixels * horizontal.pixels;
  int columns = shape.N * phase_area;
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  if (block_col >= columns) return;  // the first phase is the largest
  Magic by_taps = find_magic(max(taps, 1));
  Magic by_taps_across = find_magic(max(horizontal.taps, 1));

  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int load_a_row = threadIdx.x / KA, load_a_col = threadIdx.x % KA;
  int filter_area = shape.R * shape.S;
  int output_area = shape.P * shape.Q, input_area = shape.H * shape.W;
  int filter_stride = rows * filter_area;
  output_gradient += (size_t)group * group_K * output_area;
  input_gradient += (size_t)group * rows * input_area;
  // The first tap in the filter, and the distances of the taps in it.
  // A flipped filter is in reverse order.
  int first_tap = vertical.first_tap * shape.S + horizontal.first_tap;
  int tap_step_h = phases.tap_step_h * shape.S;
  int tap_step_w = phases.tap_step_w;
  if (shape.flip) {
    first_tap = filter_area - 1 - first_tap;
    tap_step_h = -tap_step_h, tap_step_w = -tap_step_w;
  }
  filters += (size_t)group * group_K * filter_stride + first_tap +
             (size_t)(block_row + load_a_row) * filter_area;

  // A column beyond the last one copies the last one. Its sums are
  // not stored.
  Window windows[COLUMNS];
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j) {
    int column = min(block_col + lane + 32 * j, columns - 1);
    int n = column / phase_area, pixel = column % phase_area;
    int p = vertical.first_output + pixel / horizontal.pixels;
    int q = horizontal.first_output + pixel % horizontal.pixels;
    windows[j] = {p, q, (unsigned)n * shape.K * output_area +
                            p * shape.Q + q};
  }

  // Begins to copy the tiles that start at row k_tile of the data
  // matrix. Row k is tap (i, j) of filter k / taps.
  auto load_tiles = [&](int stage, int k_tile) {
    float* tile_a = stages + stage * STAGE;
    float* tile_b = tile_a + BK * (BM + 4);
#pragma unroll
    for (int l = 0; l < BK; l += KA) {
      int k = k_tile + load_a_col + l;
      int filter = divide(k, by_taps), tap = k - filter * taps;
      int i = divide(tap, by_taps_across);
      int j = tap - i * horizontal.taps;
      const float* source = filters + (size_t)filter * filter_stride +
                            i * tap_step_h + j * tap_step_w;
      int rows_left = k < inner ? rows - block_row - load_a_row : 0;
#pragma unroll
      for (int m = 0; m < BM; m += MA)
        copy_async<4>(
            tile_a + (load_a_col + l) * (BM + 4) + load_a_row + m,
            source + (size_t)m * filter_area, m < rows_left);
    }
#pragma unroll
    for (int l = 0; l < BK; l += WARPS) {
      int k = k_tile + warp + l;
      int filter = divide(k, by_taps), tap = k - filter * taps;
      int i = divide(tap, by_taps_across);
      int p_back = i * phases.output_step_h;
      int q_back = (tap - i * horizontal.taps) * phases.output_step_w;
      unsigned offset = (unsigned)filter * output_area -
                        (p_back * shape.Q + q_back);
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        bool inside =
            k < inner &&
            (unsigned)(windows[j].p - p_back) < (unsigned)shape.P &&
            (unsigned)(windows[j].q - q_back) < (unsigned)shape.Q;
        copy_async<4>(
            tile_b + (warp + l) * BN + lane + 32 * j,
            output_gradient + (unsigned)(windows[j].offset + offset),
            inside);
      }
    }
    close_group();
  };
  for (int i = 0; i < STAGES - 1; ++i) load_tiles(i, i * BK);

  ThreadTile thread = thread_tile();
  auto input_offset = [&](int column) {
    int n = column / phase_area, pixel = column % phase_area;
    int h = vertical.first + pixel / horizontal.pixels * shape.u;
    int w = horizontal.first + pixel % horizontal.pixels * shape.v;
    return (size_t)n * shape.C * input_area + (size_t)h * shape.W + w;
  };
  bool aligned = shape.u == 1 && shape.v == 1 && input_area % 4 == 0;
  Layer neither = {1, 0, 0};  // no bias, no ReLU
  int read_stage = 0, fill_stage = STAGES - 1, k_tile = 0;
#pragma unroll 1
  do {  // also without taps: then the gradient is 0
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
    if (aligned)
      store<4>(input_gradient, nullptr, sum, block_row + thread.row,
               block_col + thread.col, rows, columns, input_area,
               neither, first_part, false, input_offset);
    else
      store<1>(input_gradient, nullptr, sum, block_row + thread.row,
               block_col + thread.col, rows, columns, input_area,
               neither, first_part, false, input_offset);
  } while (k_tile < inner);
}
