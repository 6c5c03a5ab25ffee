// Batch norm in training for NHWC: the first launch of three.
//
// Idea: in NHWC the channels of a pixel are neighbours. So a thread
// owns WIDTH channels, and a row of TX threads loads contiguous floats.
// The block goes down the pixels of its part, TY pixels at a time, 8
// loads at once. Each channel of a thread has moments of its own. A
// tree over the TY threads merges them. No lane leaves its channel, so
// no load is wasted.
// What limits it: HBM. x is read once here, and once by 08.
//
// Launch: grid (ceil(C / (TX * WIDTH)), parts), block (TX, TY), TY a
// power of two. TX, TY and WIDTH are defines.

#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = 8;

extern "C" __global__ void __launch_bounds__(TX* TY) bn_partial_nhwc(
    const float* __restrict__ x,  // [pixels, C]
    float* __restrict__ partial,  // [C, parts, 2]: mean, M2
    int pixels, int per_part, int C) {
  __shared__ Moments column[TY][TX * WIDTH];
  int part = blockIdx.y, parts = gridDim.y, ty = threadIdx.y;
  int channel = (blockIdx.x * TX + threadIdx.x) * WIDTH;
  int begin = part * per_part, end = min(begin + per_part, pixels);
  bool inside = channel < C;

  Moments own[WIDTH] = {};
  for (int first = begin + ty; first < end; first += LOADS * TY) {
    float values[LOADS][WIDTH], n = 0.0f;
    for (int k = 0; k < LOADS; ++k) {
      int pixel = first + k * TY;
      if (pixel < end) n += 1.0f;
      if (pixel < end && inside)
        load(values[k], x + (size_t)pixel * C + channel);
      else
        clear(values[k]);
    }
    for (int w = 0; w < WIDTH; ++w) {
      float sum = 0.0f, M2 = 0.0f;
      for (int k = 0; k < LOADS; ++k) sum += values[k][w];
      float m = sum / n;
      for (int k = 0; k < LOADS; ++k)
        if (first + k * TY < end)
          M2 += (values[k][w] - m) * (values[k][w] - m);
      own[w] = merge(own[w], {n, m, M2});
    }
  }
  Moments* of_thread = &column[ty][threadIdx.x * WIDTH];
  for (int w = 0; w < WIDTH; ++w) of_thread[w] = own[w];
  for (int stride = TY / 2; stride; stride /= 2) {
    __syncthreads();
    if (ty < stride)
      for (int w = 0; w < WIDTH; ++w)
        of_thread[w] =
            merge(of_thread[w], of_thread[stride * TX * WIDTH + w]);
  }
  if (ty == 0 && inside)
    for (int w = 0; w < WIDTH; ++w) {
      size_t at = 2 * ((size_t)(channel + w) * parts + part);
      partial[at] = of_thread[w].mean, partial[at + 1] = of_thread[w].M2;
    }
}
