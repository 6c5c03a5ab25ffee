// Shared by the kernels for long rows: a row four floats at a time,
// and m and l over the lanes of a warp. BLOCK is a define.
//
// A load of 16 bytes needs an address that is a multiple of 16. The
// matrix begins at one. A row of an odd length does not. Its columns
// are therefore grouped by their addresses: the first group begins 0
// to 3 floats before the row. Only the first and the last group of a
// row are loaded and stored float by float.

#include "softmax.cuh"

constexpr int WARPS = BLOCK / 32;

// Columns start .. end - 1 of a row. In the first part of a row, start
// may be up to 3 columns before the row.
struct Part {
  int start, end;
};

// Returns the part of x [N] with this number: whole groups of four, as
// many for each of so many parts. Only the last parts may have fewer.
__device__ inline Part part_of(const float* x, int N, int number,
                               int parts) {
  int before = (int)((size_t)x % 16 / 4);  // floats in the first group
  int length = 4 * (((before + N - 1) / 4 + parts) / parts);
  int start = number * length - before;
  return {start, min(N, start + length)};
}

// Returns columns col .. col + 3 of x [N]. Columns outside the row are
// -infinity: they change neither m nor l.
__device__ inline float4 load_four(const float* x, int col, int N) {
  if (col >= 0 && col + 4 <= N) return *(const float4*)(x + col);
  float four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    four[j] = col + j >= 0 && col + j < N ? x[col + j] : -INFINITE;
  return {four[0], four[1], four[2], four[3]};
}

// Stores four times factor in columns col .. col + 3 of y [N], except
// columns outside the row.
__device__ inline void store_four(float* y, int col, int N, float4 four,
                                  float factor) {
  float out[4] = {four.x * factor, four.y * factor, four.z * factor,
                  four.w * factor};
  if (col >= 0 && col + 4 <= N) {
    *(float4*)(y + col) = {out[0], out[1], out[2], out[3]};
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (col + j >= 0 && col + j < N) y[col + j] = out[j];
}

__device__ inline float max_of(float4 v) {
  return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

__device__ inline float sum_of(float4 v) {
  return (v.x + v.y) + (v.z + v.w);
}

// Returns the four exp(x - m).
__device__ inline float4 exp_of(float4 v, float m) {
  return {__expf(v.x - m), __expf(v.y - m), __expf(v.z - m),
          __expf(v.w - m)};
}

// Returns m, or 0 if it is -infinity: exp(-infinity - 0) is 0, and
// -infinity - -infinity would be NaN.
__device__ inline float finite(float m) {
  return m == -INFINITE ? 0.0f : m;
}

// Returns m and l of all lanes of the warp together.
__device__ inline Running over_warp(Running part) {
#pragma unroll
  for (int lane_mask = 16; lane_mask; lane_mask /= 2) {
    float other_m = __shfl_xor_sync(~0u, part.m, lane_mask);
    float other_l = __shfl_xor_sync(~0u, part.l, lane_mask);
    part = merge(part, {other_m, other_l});
  }
  return part;
}
