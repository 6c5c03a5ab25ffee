// Convolution alone: one block of a chain, one launch.
//
// Idea: one thread per output value multiplies the window under it, in
// all C maps, by a filter. It adds the products. Maps are the
// innermost loop. So one test decides for all maps whether a tap lies
// outside. Values of eight maps are loaded before the first is used.
// What limits it: the multiply-adds, C*R*R for every value that is
// written, each with two loads. To fuse what follows gains little.
//
// Launch: grid ceil(N*K*P*Q / block), block BLOCK.

#include "fusion.cuh"

extern "C" __global__ void conv(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ w,  // [K, C, R, R]
    float* __restrict__ y,        // [N, K, P, Q]
    Maps shape) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= output_count(shape)) return;
  int plane = divide(i, shape.by_PQ), row = divide(i, shape.by_Q);
  int q = i - row * shape.Q;      // output column
  int p = row - plane * shape.P;  // output row
  int n = divide(plane, shape.by_K), k = plane - n * shape.K;

  float v = 0.0f;
  for (int r = 0; r < shape.R; ++r)
    for (int s = 0; s < shape.R; ++s) {
      int in_row = p * shape.stride - shape.pad + r;
      int in_col = q * shape.stride - shape.pad + s;
      if (in_row < 0 || in_row >= shape.H ||
          in_col < 0 || in_col >= shape.W) continue;
      const float* pixel =  // in map 0
          x + (n * shape.C * shape.H + in_row) * shape.W + in_col;
      const float* tap =  // of map 0
          w + (k * shape.C * shape.R + r) * shape.R + s;
      int in_area = shape.W * shape.H, taps = shape.R * shape.R;
#pragma unroll 8
      for (int c = 0; c < shape.C; ++c)
        v += pixel[c * in_area] * tap[c * taps];
    }
  y[i] = v;
}
