// Softmax in two passes: maximum and sum in one.
//
// Idea (Milakov and Gimelshein, arXiv 1805.02867): a running sum l
// belongs to m, the largest number so far. When a larger number comes,
// l is multiplied by exp(old m - new m). It is then the sum for the new
// m. Two parts of a row are merged by the same rule, so one tree gives
// both m and l.
// What limits it: x is still read twice. An element costs three
// exponentials instead of two.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

#include "softmax.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) online(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ float partial_m[BLOCK], partial_l[BLOCK];  // per thread
  int thread = threadIdx.x;
  x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;  // [N]

  Running running = {-INFINITE, 0.0f};
  for (int col = thread; col < N; col += BLOCK)
    running = merge(running, {x[col], 1.0f});
  partial_m[thread] = running.m, partial_l[thread] = running.l;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) {
      running = merge(running, {partial_m[thread + stride],
                                partial_l[thread + stride]});
      partial_m[thread] = running.m, partial_l[thread] = running.l;
    }
  }
  __syncthreads();
  float m = partial_m[0], l = partial_l[0];

  for (int col = thread; col < N; col += BLOCK)
    y[col] = expf(x[col] - m) / l;
}
