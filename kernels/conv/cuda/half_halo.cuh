// What the FP16 convolutions share that load a box of the input once
// for all taps. A consumer computes 8 x 8 output pixels.

#include "half_wgmma.cuh"

// The box of the input in shared memory.
struct InputBox {
  int rows, columns;  // of pixels
  int bytes;          // of the copy
  int elements;       // up to the next box
};

// The box under all windows of rows x columns output pixels.
__device__ inline InputBox input_box(const Conv& shape, int rows,
                                     int columns, int images) {
  rows += (shape.R - 1) * shape.dilation_h;
  columns += (shape.S - 1) * shape.dilation_w;
  int bytes = images * rows * columns * BK * 2;
  return {rows, columns, bytes, (bytes + 1023) / 1024 * 512};
}

// A matrix [64, 16] whose groups of 8 rows begin `columns` rows of 128
// bytes apart.
__device__ inline unsigned long long pixels_descriptor(
    const Half* first, int columns) {
  unsigned long long address = shared_address(first);
  return (address & 0x3FFFF) >> 4 |
         (unsigned long long)(columns * 128 >> 4) << 32 | 1ull << 62;
}
