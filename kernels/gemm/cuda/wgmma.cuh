// What the kernels with wgmma share: the layout of their tiles, and
// how a warpgroup stores its sums.

#include "../../cuda/hopper.cuh"

constexpr int BK = 64;          // a row of tile_a is 128 bytes
constexpr int CHUNK = 64 * BK;  // elements of 64 columns of tile_b

// tile_a [ROWS, BK] is one box. tile_b [BK, COLS] is COLS / 64 boxes
// [BK, 64], one after the other. Rows of both are 128 bytes.
// The part of tile_a that one product reads, from k of the tile on:
__device__ inline unsigned long long part_a(const Half* tile_a,
                                            int row, int k) {
  return descriptor(tile_a + row * BK + k, 0);
}

// The part of tile_b that one product reads:
__device__ inline unsigned long long part_b(const Half* tile_b,
                                            int k) {
  return descriptor(tile_b + k * 64, CHUNK * 2);
}

// Where a tile is, counted in tiles.
struct TilePosition {
  int row, col;
};

// The position of a tile by its number. The order goes down `group`
// rows of tiles before it goes one column to the right.
__device__ inline TilePosition tile_position(int tile, int rows,
                                             int cols, int group) {
  int first_row = tile / (group * cols) * group;
  int group_rows = min(rows - first_row, group);
  tile -= first_row * cols;
  return {first_row + tile % group_rows, tile / group_rows};
}

// Stores sums [64, COLS] of a warpgroup from (row, col) of C [M, N]
// on: alpha * sum + beta * C0. N is even.
template <int COLS>
__device__ inline void store_sums(const float (&sum)[COLS / 8][4],
                                  const float* C0, float* C, int row,
                                  int col, int M, int N, float alpha,
                                  float beta) {
  // A lane stores two neighbours of a row at a time. Three other
  // lanes store the rest of the sector.
  row += threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  col += threadIdx.x % 4 * 2;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {  // 8 rows apart
    int m = row + pair * 8;
    if (m >= M) break;
#pragma unroll
    for (int j = 0; j < COLS / 8; ++j) {
      int n = col + j * 8;
      if (n >= N) break;
      size_t c_index = (size_t)m * N + n;
      float2 c = make_float2(alpha * sum[j][pair * 2],
                             alpha * sum[j][pair * 2 + 1]);
      if (beta != 0) {
        float2 c0 = *(const float2*)&C0[c_index];
        c.x += beta * c0.x;
        c.y += beta * c0.y;
      }
      *(float2*)&C[c_index] = c;
    }
  }
}

// Stores the same through shared memory, as boxes of 32 columns. The
// copy engine writes a box while the warpgroup prepares the next one.
// `boxes` [2][64, 32] are swizzled as the map of C says.
template <int COLS>
__device__ inline void store_boxes(const float (&sum)[COLS / 8][4],
                                   const float* C0,
                                   const TensorMap* C, float* boxes,
                                   int row, int col, int M, int N,
                                   float alpha, float beta,
                                   int warpgroup) {
  int lane_row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  int lane_col = threadIdx.x % 4 * 2;
#pragma unroll
  for (int part = 0; part < COLS / 32; ++part) {
    float* box = boxes + part % 2 * 64 * 32;
    if (threadIdx.x % 128 == 0) wait_stores_read<1>();
    warpgroup_barrier(warpgroup);  // the box can be overwritten
#pragma unroll
    for (int pair = 0; pair < 2; ++pair)  // 8 rows apart
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        int box_row = lane_row + pair * 8, box_col = lane_col + j * 8;
        int m = row + box_row, n = col + part * 32 + box_col;
        float2 c = make_float2(alpha * sum[part * 4 + j][pair * 2],
                               alpha * sum[part * 4 + j][pair * 2 + 1]);
        if (beta != 0 && m < M && n < N) {
          float2 c0 = *(const float2*)&C0[(size_t)m * N + n];
          c.x += beta * c0.x;
          c.y += beta * c0.y;
        }
        int swizzle = box_row % 8 * 4;
        *(float2*)&box[box_row * 32 + (box_col ^ swizzle)] = c;
      }
    publish_writes();
    warpgroup_barrier(warpgroup);  // the box is complete
    if (threadIdx.x % 128 == 0) {
      store_box(C, col + part * 32, row, box);
      close_stores();
    }
  }
}
