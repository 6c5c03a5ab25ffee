// Shared by the pooling kernels: sizes, windows, and the rule of a
// maximum.

#include "../../cuda/magic.cuh"

struct Pool {
  int H, W;                    // a plane of x
  int P, Q;                    // a plane of y
  int R, S;                    // window: rows, columns
  int u, v;                    // vertical stride, horizontal stride
  int pad_h, pad_w;            // padding above and left of a plane
  int dilation_h, dilation_w;  // distance of neighbouring taps
  int include_pad;             // 1: padding counts in a divisor
  int down, across;            // patches of a plane: rows, columns
  Magic by_Q, by_PQ, by_W, by_HW, by_across, by_down;
};

// Less than every float: a maximum before its first value.
constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

// Returns the first tap of a window that is inside the plane. `start`
// is the row or column of its first tap.
__device__ inline int first_inside(int start, int dilation) {
  return start < 0 ? start + (-start + dilation - 1) / dilation * dilation
                   : start;
}

// Returns whether `value` replaces the largest value so far. Of equal
// values the first stays. A NaN counts as larger than every number.
__device__ inline bool larger(float value, float best) {
  return value > best || value != value;
}

// Returns how many rows (or columns) of window number i an average is
// divided by. Those beyond the padding never count.
__device__ inline int counted(int i, int stride, int window, int pad,
                              int extent, int include_pad) {
  int start = i * stride - pad;
  int stop = min(start + window, extent + pad);
  return include_pad ? stop - start : min(stop, extent) - max(start, 0);
}

// Returns the number that the sum of window (p, q) is divided by.
__device__ inline float divisor(int p, int q, const Pool& shape) {
  return (float)counted(p, shape.u, shape.R, shape.pad_h, shape.H,
                        shape.include_pad) *
         (float)counted(q, shape.v, shape.S, shape.pad_w, shape.W,
                        shape.include_pad);
}

// Returns numerator / denominator rounded up; denominator > 0.
__device__ constexpr int ceil_div(int numerator, int denominator) {
  return numerator > 0 ? (numerator + denominator - 1) / denominator
                       : -(-numerator / denominator);
}
