// What both implicit products for the gradient of the filters share:
// all but the store. For each group they compute C = A x B transposed.
// A holds the output gradient [K / groups, N*P*Q]. B is the data matrix
// [C / groups * R * S, N*P*Q], made tile by tile in shared memory. The
// sum over N*P*Q is cut into parts, one per block.

#include "implicit.cuh"
#include "../../cuda/magic.cuh"

// The numbers to divide by: P * Q, Q.
struct Divisors {
  Magic output_area, Q;
};

// Both tiles are stored transposed, with rows of 4 more floats: the 8
// terms and 4 rows that a warp copies go to 32 different banks.
constexpr int PITCH_A = BM + 4, PITCH_B = BN + 4;
constexpr int BOTH = BK * (PITCH_A + PITCH_B);  // floats of a stage

// One column of C: a tap of a channel. (h, w) is the distance of its
// pixel from the output pixel times the stride, `offset` that distance
// in the input.
struct Tap {
  int h, w;
  unsigned offset;
};

__device__ inline Tap find_tap(int column, const Conv& shape) {
  int filter_area = shape.R * shape.S;
  int c = column / filter_area, tap = column % filter_area;
  int r = tap / shape.S, s = tap % shape.S;
  if (shape.flip) r = shape.R - 1 - r, s = shape.S - 1 - s;
  int h = r * shape.dilation_h - shape.pad_h;
  int w = s * shape.dilation_w - shape.pad_w;
  return {h, w, (unsigned)c * shape.H * shape.W + h * shape.W + w};
}

// Adds the product of the tiles of one stage to a thread's sums.
__device__ inline void multiply_transposed(float (&sum)[TM][TN],
                                           const float* stage,
                                           ThreadTile thread) {
  const float* tile_a = stage + thread.row;  // [BK, PITCH_A]
  const float* tile_b =                      // [BK, PITCH_B]
      stage + BK * PITCH_A + thread.col;
#pragma unroll
  for (int k = 0; k < BK; ++k) {
    __align__(16) float a[TM], b[TN];
#pragma unroll
    for (int i = 0; i < TM; i += 4)
      *(float4*)&a[i] = *(float4*)&tile_a[k * PITCH_A + i * (WM / TM)];
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      *(float4*)&b[j] = *(float4*)&tile_b[k * PITCH_B + j * (WN / TN)];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
  }
}

// Computes a thread's sums over the terms first_term .. end_term - 1.
// A term is one output pixel of one image. `input` and
// `output_gradient` begin at the block's group.
__device__ inline void correlate(float (&sum)[TM][TN], float* stages,
                                 const float* input,
                                 const float* output_gradient,
                                 const Conv& shape, int rows,
                                 int columns, const Divisors& divisors,
                                 int first_term, int end_term) {
  int load_row = threadIdx.x / KA, load_col = threadIdx.x % KA;
  int output_area = shape.P * shape.Q;
  int rows_left = rows - (int)blockIdx.y * BM - load_row;
  unsigned first_row =
      (unsigned)(blockIdx.y * BM + load_row) * output_area;
  // A column beyond the last one copies the last one. Its sums are
  // not stored.
  Tap taps[BN / MA];
#pragma unroll
  for (int m = 0; m < BN / MA; ++m)
    taps[m] = find_tap(
        min((int)blockIdx.x * BN + load_row + m * MA, columns - 1),
        shape);

  // Begins to copy the tiles that start at term k_tile. A thread copies
  // the same terms of both tiles and splits each into (n, p, q) once.
  auto load_tiles = [&](int stage, int k_tile) {
    float* tile_a = stages + stage * BOTH + load_row;
    float* tile_b = tile_a + BK * PITCH_A;
#pragma unroll
    for (int l = 0; l < BK; l += KA) {
      int k = k_tile + load_col + l;
      int n = divide(k, divisors.output_area);
      int output_pixel = k - n * output_area;
      int p = divide(output_pixel, divisors.Q);
      int q = output_pixel - p * shape.Q;
      int h = p * shape.u, w = q * shape.v;
      unsigned gradient_offset =
          (unsigned)n * shape.K * output_area + output_pixel + first_row;
      unsigned input_offset =
          (unsigned)n * shape.C * shape.H * shape.W + h * shape.W + w;
#pragma unroll
      for (int m = 0; m < BM; m += MA)
        copy_async<4>(
            tile_a + (load_col + l) * PITCH_A + m,
            output_gradient +
                (unsigned)(gradient_offset + (unsigned)m * output_area),
            k < end_term && m < rows_left);
#pragma unroll
      for (int m = 0; m < BN / MA; ++m) {
        bool inside =
            k < end_term &&
            (unsigned)(h + taps[m].h) < (unsigned)shape.H &&
            (unsigned)(w + taps[m].w) < (unsigned)shape.W;
        copy_async<4>(tile_b + (load_col + l) * PITCH_B + m * MA,
                      input + (unsigned)(input_offset + taps[m].offset),
                      inside);
      }
    }
    close_group();
  };
  for (int i = 0; i < STAGES - 1; ++i)
    load_tiles(i, first_term + i * BK);

  ThreadTile thread = thread_tile();
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int k_tile = first_term; k_tile < end_term; k_tile += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    load_tiles(fill_stage, k_tile + (STAGES - 1) * BK);
    multiply_transposed(sum, stages + read_stage * BOTH, thread);
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }
}

// Calls action(row, column, i, j) for each of a thread's sums
// sum[i][j] that lies in C, WIDTH neighbouring columns at a time.
template <int WIDTH, class Action>
__device__ inline void for_each_sum(int rows, int columns,
                                    Action action) {
  ThreadTile thread = thread_tile();
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    int row = blockIdx.y * BM + thread.row + i / 4 * 4 * (WM / TM) +
              i % 4;
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < TN; j += WIDTH) {
      int column = blockIdx.x * BN + thread.col +
                   j / 4 * 4 * (WN / TN) + j % 4;
      if (column < columns) action(row, column, i, j);
    }
  }
}
