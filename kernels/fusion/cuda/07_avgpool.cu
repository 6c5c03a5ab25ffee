// Average pooling alone: one block of a chain, one launch.
//
// Idea: one thread per output value adds the R x R values under its
// window and divides by their number. Values outside the map count as
// zero.
// What limits it: HBM. If windows overlap, the caches hold the values
// that are read again.
//
// Launch: grid ceil(N*C*P*Q / block), block BLOCK.

#include "fusion.cuh"

extern "C" __global__ void avgpool(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, P, Q]
    Maps shape) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= output_count(shape)) return;
  int plane = divide(i, shape.by_PQ), row = divide(i, shape.by_Q);
  int q = i - row * shape.Q;      // output column
  int p = row - plane * shape.P;  // output row

  float v = 0.0f;
  for (int r = 0; r < shape.R; ++r)
    for (int s = 0; s < shape.R; ++s) {
      int in_row = p * shape.stride - shape.pad + r;
      int in_col = q * shape.stride - shape.pad + s;
      if (in_row < 0 || in_row >= shape.H ||
          in_col < 0 || in_col >= shape.W) continue;
      v += x[(plane * shape.H + in_row) * shape.W + in_col];
    }
  y[i] = v / (shape.R * shape.R);
}
