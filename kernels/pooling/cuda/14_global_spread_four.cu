// Global average pooling backward, four pixels per thread and store.
//
// Idea: dx is one long array. Each thread fills PER groups of four
// floats, BLOCK groups apart, each with one store. The plane may end
// within a group: then its floats have two gradients or more.
// What limits it: HBM, which is only written.
//
// Launch: grid ceil(count / (4 * PER * BLOCK)), block BLOCK.

#include "pool.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) global_spread_four(
    const float* __restrict__ dy,  // [planes], planes = N * C
    float* __restrict__ dx,        // [planes, area], area = H * W
    Magic by_area, int area, int count) {  // count = planes * area
  int first = (blockIdx.x * PER * BLOCK + threadIdx.x) * 4;
#pragma unroll
  for (int k = 0; k < PER; ++k) {
    int i = first + k * 4 * BLOCK;
    if (i >= count) return;
    int plane = divide(i, by_area);
    float share = dy[plane] / area;
    float shares[4];
    for (int j = 0; j < 4; ++j) {
      shares[j] = share;
      if (i + j + 1 < count && i + j + 1 == (plane + 1) * area)
        share = dy[++plane] / area;  // the next float is of the next plane
    }
    if (i + 4 <= count)
      *(float4*)(dx + i) = make_float4(shares[0], shares[1], shares[2],
                                       shares[3]);
    else
      for (int j = 0; j < 4 && i + j < count; ++j) dx[i + j] = shares[j];
  }
}
