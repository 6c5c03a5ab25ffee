// Winograd, the filters: U = G g G^T, from 3x3 to T x T.
//
// Idea: the kernel runs once for all tiles and images, which share its
// cost. In w the taps of a filter are contiguous, but the product
// after this kernel needs contiguous filters. A block copies 32
// filters x 8 channels through shared memory: it loads along the taps
// and stores along the filters. A row there has 73 floats, an odd
// number, so that 32 filters are in 32 banks.
// What limits it: memory traffic. It writes T*T floats for 9. With
// many filters and few tiles this equals the traffic of the product.
//
// Launch: grid (ceil(round_up_4(K) / 32), ceil(C / 8)), block 256.

#include "winograd.cuh"

constexpr int FILTERS = 32, CHANNELS = 8;  // of a block
constexpr int THREADS = FILTERS * CHANNELS;

extern "C" __global__ void __launch_bounds__(THREADS) winograd_filter(
    const float* __restrict__ filters,  // w [K, C, 3, 3]
    float* __restrict__ U,              // [T*T, C, round_up_4(K)]
    Conv shape) {
  __shared__ float taps[FILTERS][CHANNELS * 9 + 1];
  int block_k = blockIdx.x * FILTERS, block_c = blockIdx.y * CHANNELS;
  for (int i = threadIdx.x; i < FILTERS * CHANNELS * 9; i += THREADS) {
    int k = i / (CHANNELS * 9), tap = i % (CHANNELS * 9);
    bool inside = block_k + k < shape.K && block_c + tap / 9 < shape.C;
    size_t filter = (size_t)(block_k + k) * shape.C + block_c;
    taps[k][tap] = inside ? filters[filter * 9 + tap] : 0.0f;
  }
  __syncthreads();

  int k = threadIdx.x % FILTERS, c = threadIdx.x / FILTERS;
  float g[3][3], u[T][T];
#pragma unroll
  for (int i = 0; i < 9; ++i)
    g[i / 3][i % 3] = taps[k][c * 9 + (shape.flip ? 8 - i : i)];
  transform_2d(G, g, u);
  if (block_k + k >= round_up_4(shape.K) || block_c + c >= shape.C) return;
  U += (size_t)(block_c + c) * round_up_4(shape.K) + block_k + k;
#pragma unroll
  for (int position = 0; position < T * T; ++position)
    U[(size_t)position * shape.C * round_up_4(shape.K)] =
        u[position / T][position % T];
}
