// What both implicit-GEMM kernels share: all but the index arithmetic.
// For each group they compute C = A x B. A holds the filters
// [K / groups, C / groups * R * S]. B is the data matrix, made tile by
// tile in shared memory. C is the output [K / groups, N*P*Q].

#include "../../cuda/async.cuh"
#include "conv.cuh"
#include "layer.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int WARPS = THREADS / 32;
constexpr int COLUMNS = BN / 32;  // of B, loaded by one lane
constexpr int ACROSS = TN < TM ? 8 : 4;  // lanes along a row of C
constexpr int WM = 32 / ACROSS * TM, WN = ACROSS * TN;  // warp tile
constexpr int STAGE = BK * (BM + 4 + BN);  // floats of tile_a, tile_b
constexpr int PART = 1536;  // terms of one partial sum

// Blocks that share an SM. Each thread then has 128 registers, or 168
// if it has more than 32 sums. ROOM is the number of threads.
constexpr int ROOM = TM * TN > 32 ? 384 : 512;
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

// The threads load the filters as a grid of MA rows by KA columns: a
// warp loads 8 neighbouring k of 4 rows.
constexpr int KA = 8, MA = THREADS / KA;

// Begins to copy a tile of the filters, transposed: tile_a[k][m]. A
// warp stores to 32 different banks. `filters` is the thread's first
// element, (load_a_row, load_a_col) its position in the tile. The
// matrix has `rows_left` rows and `inner_left` columns from the tile
// on; elements outside become zero.
__device__ inline void load_filters(float* tile_a, const float* filters,
                                    int load_a_col, int load_a_row,
                                    int inner_left, int rows_left,
                                    int row_stride) {
#pragma unroll
  for (int k = 0; k < BK; k += KA) {
    int rows = load_a_col + k < inner_left ? rows_left - load_a_row : 0;
#pragma unroll
    for (int m = 0; m < BM; m += MA)
      copy_async<4>(
          tile_a + (load_a_col + k) * (BM + 4) + load_a_row + m,
          filters + (size_t)m * row_stride + k, m < rows);
  }
}

// The position of a thread's sums in the block's tile of C. The sums
// are TM rows by TN columns, in pieces of 4 x 4. The lanes of a warp are
// arranged as in gemm/09_warp_tile.cu.
struct ThreadTile {
  int row, col;  // of the first sum
};

__device__ inline ThreadTile thread_tile() {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int lane_row = lane / (2 * ACROSS) * 2 + lane % 2;
  return {warp / (BN / WN) * WM + lane_row * 4,
          warp % (BN / WN) * WN + lane / 2 % ACROSS * 4};
}

// Adds the product of the tiles of one stage to a thread's sums.
__device__ inline void multiply(float (&sum)[TM][TN],
                                const float* stage,
                                ThreadTile thread) {
  const float* tile_a = stage + thread.row;  // [BK, BM + 4]
  const float* tile_b =                      // [BK, BN]
      stage + BK * (BM + 4) + thread.col;
#pragma unroll
  for (int k = 0; k < BK; ++k) {
    __align__(16) float a[TM], b[TN];
#pragma unroll
    for (int i = 0; i < TM; i += 4)
      *(float4*)&a[i] =
          *(float4*)&tile_a[k * (BM + 4) + i * (WM / TM)];
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      *(float4*)&b[j] = *(float4*)&tile_b[k * BN + j * (WN / TN)];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
  }
}

// WIDTH floats that one instruction loads or stores.
template <int WIDTH>
struct alignas(4 * WIDTH) Vector {
  float element[WIDTH];
};

// Stores a thread's sums to the output, WIDTH neighbours at a time. In
// the output a column of C begins at output_offset(column).
// The first part of a long sum is stored, later parts are added to it.
// The last part also adds the bias and applies ReLU.
template <int WIDTH, class Offset>
__device__ inline void store(float* output, const float* bias,
                             const float (&sum)[TM][TN],
                             int first_row, int first_col, int rows,
                             int columns, int output_area,
                             const Layer& layer, bool first_part,
                             bool last_part, Offset output_offset) {
#pragma unroll
  for (int j = 0; j < TN; j += WIDTH) {
    int column = first_col + j / 4 * 4 * (WN / TN) + j % 4;
    if (column >= columns) continue;
    float* output_column = output + output_offset(column);
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      int row = first_row + i / 4 * 4 * (WM / TM) + i % 4;
      if (row >= rows) continue;
      auto* target =
          (Vector<WIDTH>*)(output_column + (size_t)row * output_area);
      Vector<WIDTH> value = {};
      if (!first_part) value = *target;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        value.element[e] += sum[i][j + e];
        if (last_part)
          value.element[e] =
              apply_bias_relu(value.element[e], bias, row, layer);
      }
      *target = value;
    }
  }
}
