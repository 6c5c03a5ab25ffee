// The links between input pixels and output pixels, in both directions.
// The kernels of the backward pass use them.

#include "conv.cuh"
#include "layer.cuh"

// Returns the output row (or column) that reads input row `position`
// through a tap. -1: there is none. Then the tap is outside the
// output, or in a hole between two outputs of the stride. The tap is
// `tap_offset` rows below the first one.
__device__ inline int fed_output(int position, int pad, int tap_offset,
                                 int stride, int outputs) {
  int distance = position + pad - tap_offset;
  if (distance < 0 || distance % stride != 0) return -1;
  int output = distance / stride;
  return output < outputs ? output : -1;
}

// Returns the row of the filter at position r of its windows. A
// flipped filter is in reverse order.
__device__ inline int filter_row(const Conv& shape, int r) {
  return shape.flip ? shape.R - 1 - r : r;
}

__device__ inline int filter_col(const Conv& shape, int s) {
  return shape.flip ? shape.S - 1 - s : s;
}
