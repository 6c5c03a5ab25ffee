// How a warpgroup stores its sums if the values of C0 are loaded ahead.

#include "wgmma.cuh"

// Loads the values of C0 [64, 32] that a lane adds to a box, from
// (row, col) of C0 [M, N] on. Values outside C0 are not loaded.
__device__ inline void load_c0(float2 (&c0)[2][4], const float* C0,
                               int row, int col, int M, int N) {
#pragma unroll
  for (int pair = 0; pair < 2; ++pair)  // 8 rows apart
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int m = row + pair * 8, n = col + j * 8;
      if (m < M && n < N)
        c0[pair][j] = *(const float2*)&C0[(size_t)m * N + n];
    }
}

// Stores sums [64, COLS] as store_boxes in wgmma.cuh does, but loads
// the values of C0 a box ahead of the sums that they are added to.
template <int COLS>
__device__ inline void store_boxes_ahead(
    const float (&sum)[COLS / 8][4], const float* C0,
    const TensorMap* C, float* boxes, int row, int col, int M, int N,
    float alpha, float beta, int warpgroup) {
  int lane_row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  int lane_col = threadIdx.x % 4 * 2;
  float2 c0[2][2][4] = {};  // of this box and the next one
  if (beta != 0)
    load_c0(c0[0], C0, row + lane_row, col + lane_col, M, N);
#pragma unroll
  for (int part = 0; part < COLS / 32; ++part) {
    float* box = boxes + part % 2 * 64 * 32;
    if (beta != 0 && part + 1 < COLS / 32)
      load_c0(c0[(part + 1) % 2], C0, row + lane_row,
              col + (part + 1) * 32 + lane_col, M, N);
    if (threadIdx.x % 128 == 0) wait_stores_read<1>();
    warpgroup_barrier(warpgroup);  // the box can be overwritten
#pragma unroll
    for (int pair = 0; pair < 2; ++pair)  // 8 rows apart
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        int box_row = lane_row + pair * 8, box_col = lane_col + j * 8;
        float2 c = make_float2(alpha * sum[part * 4 + j][pair * 2],
                               alpha * sum[part * 4 + j][pair * 2 + 1]);
        if (beta != 0) {
          c.x += beta * c0[part % 2][pair][j].x;
          c.y += beta * c0[part % 2][pair][j].y;
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
