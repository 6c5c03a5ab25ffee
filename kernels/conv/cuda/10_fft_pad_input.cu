// Convolution by FFT, the input: each channel is copied with its
// padding to arrays of the transform's size.
//
// Idea: a transform treats its array as periodic: a window that leaves
// it on the right enters it on the left. The output pixels whose
// windows stay inside the array are right. An array as large as the
// padded input yields all of them. A smaller array yields a part. The
// next array then begins where these windows end (overlap-save). One
// thread writes one float.
// What limits it: memory traffic, because the kernel computes nothing.
// The overlap is written twice.
//
// Launch: grid (ceil(C*rows*columns / BLOCK), N*down*across), block
// BLOCK.

#include "conv.cuh"
#include "fft.cuh"

extern "C" __global__ void fft_pad_input(
    const float* __restrict__ input,  // x [N, C, H, W]
    float* __restrict__ padded,  // [N, down, across, C, rows, columns]
    Conv shape, Tiling tiling) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= shape.C * tiling.rows * tiling.columns) return;
  int tile = blockIdx.y % (tiling.down * tiling.across);
  int n = blockIdx.y / (tiling.down * tiling.across);  // image
  int c = element / (tiling.rows * tiling.columns);
  int h = element / tiling.columns % tiling.rows +
          tile / tiling.across * tiling.step_h;
  int w = element % tiling.columns +
          tile % tiling.across * tiling.step_w;
  h -= shape.pad_h, w -= shape.pad_w;

  bool inside = 0 <= h && h < shape.H && 0 <= w && w < shape.W;
  float value = 0.0f;
  if (inside)
    value = input[(((size_t)n * shape.C + c) * shape.H + h) * shape.W + w];
  padded += (size_t)blockIdx.y * shape.C * tiling.rows * tiling.columns;
  padded[element] = value;
}
