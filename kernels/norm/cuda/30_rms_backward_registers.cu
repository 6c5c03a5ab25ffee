// The gradients of RMS norm that read dy and x once.
//
// Idea: a block takes one row after the other and keeps dy and x of the
// row in registers. Each thread has the same columns in each row. So it
// adds their terms of dgamma in registers too. At the end the block
// stores its sums. A second launch, 17, adds those of all blocks.
// What limits it: HBM alone. And a row must fit into the registers of
// a block: N <= BLOCK * PER.
//
// Launch: grid any number of blocks, block BLOCK, whole warps. BLOCK,
// PER and WIDTH are defines.

#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = PER / WIDTH;

extern "C" __global__ void __launch_bounds__(BLOCK)
    rms_backward_registers(
        const float* __restrict__ dy,      // [M, N]
        const float* __restrict__ x,       // [M, N]
        const float* __restrict__ gamma,   // [N]
        const float* __restrict__ invrms,  // [M], from the forward pass
        float* __restrict__ dx,            // [M, N]
        float* __restrict__ partial_gamma,  // [blocks, N]
        int M, int N) {
  // Rows use the two halves in turn, so one barrier a row is enough.
  __shared__ float warp_gx[2][BLOCK / 32];
  int thread = threadIdx.x, half = 0;
  float sum_gamma[LOADS][WIDTH] = {};

  for (int row = blockIdx.x; row < M; row += gridDim.x, half ^= 1) {
    size_t start = (size_t)row * N;
    float s = invrms[row];
    float gs[LOADS][WIDTH], xhats[LOADS][WIDTH];
    for (int i = 0; i < LOADS; ++i) {
      int col = (i * BLOCK + thread) * WIDTH;
      if (col < N) load(gs[i], dy + start + col);
      else clear(gs[i]);
      if (col < N) load(xhats[i], x + start + col);
      else clear(xhats[i]);
    }
    float sum_gx = 0.0f;
    for (int i = 0; i < LOADS; ++i) {
      int col = (i * BLOCK + thread) * WIDTH;
      if (col >= N) break;
      float gammas[WIDTH];
      load(gammas, gamma + col);
      for (int w = 0; w < WIDTH; ++w) {
        xhats[i][w] *= s;
        sum_gamma[i][w] += gs[i][w] * xhats[i][w];
        gs[i][w] *= gammas[w];
        sum_gx += gs[i][w] * xhats[i][w];
      }
    }
    sum_gx = sum_of_block(sum_gx, warp_gx[half]);
    float mean_gx = sum_gx / N;
    for (int i = 0; i < LOADS; ++i) {
      int col = (i * BLOCK + thread) * WIDTH;
      if (col >= N) break;
      for (int w = 0; w < WIDTH; ++w)
        gs[i][w] = s * (gs[i][w] - xhats[i][w] * mean_gx);
      store(dx + start + col, gs[i]);
    }
  }
  for (int i = 0; i < LOADS; ++i) {
    int col = (i * BLOCK + thread) * WIDTH;
    if (col >= N) break;
    store(partial_gamma + (size_t)blockIdx.x * N + col, sum_gamma[i]);
  }
}
