// Shared by the kernels in which a thread computes the outputs of a
// patch. The window is known to the compiler: all loops are unrolled,
// and every array is in registers.

#include "pool.cuh"

// A thread has whole strides: at least HIGH rows and WIDE columns of x.
constexpr int DOWN = (HIGH + STRIDE_H - 1) / STRIDE_H;    // rows of y
constexpr int ACROSS = (WIDE + STRIDE_W - 1) / STRIDE_W;  // columns of y

// The patch of x under these outputs.
constexpr int SPAN_H = (WINDOW_H - 1) * DILATION_H + 1;
constexpr int SPAN_W = (WINDOW_W - 1) * DILATION_W + 1;
constexpr int PATCH_H = (DOWN - 1) * STRIDE_H + SPAN_H;
constexpr int PATCH_W = (ACROSS - 1) * STRIDE_W + SPAN_W;

// Returns the tap, 0 .. taps - 1, of a window that is `distance` after
// its first tap; -1 if there is none.
__device__ constexpr int tap_at(int distance, int taps, int dilation) {
  return distance >= 0 && distance % dilation == 0 &&
                 distance / dilation < taps
             ? distance / dilation
             : -1;
}

// Which patch a thread has.
struct Place {
  int plane, p, q;  // its first output
};

__device__ inline Place place_of(int i, const Pool& shape) {
  int row = divide(i, shape.by_across);     // row of patches
  int plane = divide(row, shape.by_down);
  return {plane, (row - plane * shape.down) * DOWN,
          (i - row * shape.across) * ACROSS};
}

// Loads one row of a patch of x from column `left` on; x is that row of
// the plane, [W]. Pixels outside of it become `outside`. If VECTOR is
// 4, every row and every patch begins at a multiple of 16 bytes (plus
// PAD_W). So four floats are loaded at once, where the patch has four.
__device__ inline void load_row(float (&patch)[PATCH_W], const float* x,
                                int left, int W, bool inside,
                                float outside) {
#pragma unroll
  for (int c = 0; c < PATCH_W; ++c) {
    if (VECTOR == 4 && c >= PAD_W % 4 &&
        (c - PAD_W % 4) / 4 * 4 + PAD_W % 4 + 4 <= PATCH_W) {
      if ((c - PAD_W % 4) % 4) continue;  // loaded with those before
      int w = left + c;
      float4 four = make_float4(outside, outside, outside, outside);
      if (inside && 0 <= w && w < W) four = *(const float4*)(x + w);
      patch[c] = four.x, patch[c + 1] = four.y;
      patch[c + 2] = four.z, patch[c + 3] = four.w;
    } else {
      int w = left + c;
      patch[c] = inside && 0 <= w && w < W ? x[w] : outside;
    }
  }
}

// Stores N values in a row from column `first` on; `row` is [extent],
// and begins at a multiple of N elements if `extent` is one.
template <int N, typename T, typename T2, typename T4>
__device__ inline void store_row(T* row, const T (&values)[N], int first,
                                 int extent) {
  if (N % 4 == 0 && extent % 4 == 0) {
#pragma unroll
    for (int c = 0; c + 3 < N; c += 4)
      if (first + c < extent)
        *(T4*)(row + first + c) = {values[c], values[c + 1],
                                   values[c + 2], values[c + 3]};
  } else if (N % 2 == 0 && extent % 2 == 0) {
#pragma unroll
    for (int c = 0; c + 1 < N; c += 2)
      if (first + c < extent)
        *(T2*)(row + first + c) = {values[c], values[c + 1]};
  } else {
#pragma unroll
    for (int c = 0; c < N; ++c)
      if (first + c < extent) row[first + c] = values[c];
  }
}
