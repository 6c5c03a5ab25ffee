// Shared by the tiled products of a linear layer: copies of tiles to
// shared memory, the multiply-adds of one pair of tiles, and stores.
// A block computes BM x BN results, a warp WM x WN of them, a thread
// TM x TN. Both tiles have k, the index that is summed over, as their
// row: tile_a is [BK][BM + 4], tile_b [BK][BN + 4]. The four floats
// of padding spread the rows over the banks of shared memory.

#include "../../cuda/async.cuh"
#include "../../cuda/gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int ACROSS = WN / TN;  // lanes along a row of a warp's tile

// Begins to copy a tile whose matrix has k along its rows: it is
// transposed while it is copied, float by float. `from` is the first
// float of this thread, `columns` the length of a row. The matrix ends
// side_left rows and k_left columns after the tile's first element;
// zeros are written beyond. If WHOLE, nothing is tested.
template <bool WHOLE, int SIDE>
__device__ inline void copy_transposed(float (*tile)[SIDE + 4],
                                       const float* from, int columns,
                                       int side_left, int k_left) {
  int side = threadIdx.x / BK, k = threadIdx.x % BK;
#pragma unroll (WHOLE ? SIDE : 1)
  for (int offset = 0; offset < SIDE; offset += THREADS / BK)
    copy_async<4>(&tile[k][side + offset],
                  from + (size_t)offset * columns,
                  WHOLE || (side + offset < side_left && k < k_left));
}

// Begins to copy a tile whose matrix has k along its columns: rows are
// copied as they are, 16 bytes at a time. The arguments are as above.
// If WHOLE, rows of the matrix are multiples of 16 bytes too.
template <bool WHOLE, int SIDE>
__device__ inline void copy_straight(float (*tile)[SIDE + 4],
                                     const float* from, int columns,
                                     int side_left, int k_left) {
  int side = threadIdx.x % (SIDE / 4) * 4, k = threadIdx.x / (SIDE / 4);
#pragma unroll (WHOLE ? BK : 1)
  for (int offset = 0; offset < BK; offset += THREADS / (SIDE / 4))
    copy4_async<WHOLE>(&tile[k + offset][side],
                       from + (size_t)offset * columns,
                       k + offset < k_left ? side_left - side : 0);
}

// The first row of the thread's results in the block's tile. The
// lanes of a warp are laid over its tile in pairs.
__device__ inline int first_row() {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  return warp / (BN / WN) * WM +
         (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
}

__device__ inline int first_col() {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  return warp % (BN / WN) * WN + lane / 2 % ACROSS * 4;
}

// Row i and column j of the thread's results: squares of 4 x 4, spread
// over the tile of the warp.
__device__ inline int row_at(int i) {
  return i / 4 * 4 * (WM / TM) + i % 4;
}

__device__ inline int col_at(int j) {
  return j / 4 * 4 * (WN / TN) + j % 4;
}

// Adds the products of a pair of tiles to the thread's sums.
__device__ inline void add_products(float (&sum)[TM][TN],
                                    const float (*tile_a)[BM + 4],
                                    const float (*tile_b)[BN + 4],
                                    int thread_row, int thread_col) {
#pragma unroll
  for (int k = 0; k < BK; ++k) {
    __align__(16) float a[TM], b[TN];
#pragma unroll
    for (int i = 0; i < TM; i += 4)
      *(float4*)&a[i] = *(float4*)&tile_a[k][thread_row + row_at(i)];
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      *(float4*)&b[j] = *(float4*)&tile_b[k][thread_col + col_at(j)];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
  }
}

// Stores four results of a row of out [rows, cols], only those inside.
__device__ inline void store_four(float* out, int rows, int cols,
                                  int row, int col, float4 values) {
  if (row >= rows || col >= cols) return;
  out += (size_t)row * cols + col;
  if (cols % 4 == 0) {
    *(float4*)out = values;
    return;
  }
  out[0] = values.x;
  if (col + 1 < cols) out[1] = values.y;
  if (col + 2 < cols) out[2] = values.z;
  if (col + 3 < cols) out[3] = values.w;
}
