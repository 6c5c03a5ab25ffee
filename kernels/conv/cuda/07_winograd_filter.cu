// Winograd, the filters: U = G g G^T, from 3x3 to T x T.
//
// Idea: once for all tiles and images, so what it costs is shared by
// all of them. A filter's taps lie side by side in w, but the
// product after this wants filters side by side: a block takes 32
// filters x 8 channels through shared memory, reads along taps and
// writes along filters. Rows of 73 floats there, an odd number, let
// 32 filters read 32 banks.
// What limits it: memory. Of 9 floats it makes T*T; with many
// filters and few tiles that is as much as the product itself reads.
//
// Launch: grid (ceil(fours(K) / 32), ceil(C / 8)), block 256.

#include "winograd.cuh"

constexpr int FILTERS = 32, CHANNELS = 8;  // of a block
constexpr int THREADS = FILTERS * CHANNELS;

extern "C" __global__ void __launch_bounds__(THREADS) winograd_filter(
    const float* __restrict__ w,  // [K, C, 3, 3]
    float* __restrict__ U,        // [T*T, C, fours(K)]
    Conv s) {
  __shared__ float taps[FILTERS][CHANNELS * 9 + 1];
  int k0 = blockIdx.x * FILTERS, c0 = blockIdx.y * CHANNELS;
  for (int i = threadIdx.x; i < FILTERS * CHANNELS * 9; i += THREADS) {
    int k = i / (CHANNELS * 9), at = i % (CHANNELS * 9);
    bool inside = k0 + k < s.K && c0 + at / 9 < s.C;
    size_t filter = (size_t)(k0 + k) * s.C + c0;
    taps[k][at] = inside ? w[filter * 9 + at] : 0.0f;
  }
  __syncthreads();

  int k = threadIdx.x % FILTERS, c = threadIdx.x / FILTERS;
  float g[3][3], u[T][T];
#pragma unroll
  for (int i = 0; i < 9; ++i)
    g[i / 3][i % 3] = taps[k][c * 9 + (s.flip ? 8 - i : i)];
  both_sides(G, g, u);
  if (k0 + k >= fours(s.K) || c0 + c >= s.C) return;
  U += (size_t)(c0 + c) * fours(s.K) + k0 + k;
#pragma unroll
  for (int p = 0; p < T * T; ++p)
    U[(size_t)p * s.C * fours(s.K)] = u[p / T][p % T];
}
