// Convolution by FFT, the product: at each frequency the sum over the
// maps of input times conjugate filter.
//
// Idea: sliding a filter over an image is, in the spectra, one complex
// product for each frequency; the conjugate makes it a correlation.
// With many maps and filters that is at each frequency a matrix
// product [images x C] by [C x K], and like any it is tiled: a block
// owns SPECTRA images x FILTERS filters at FREQUENCIES neighbouring
// frequencies, which lie side by side, and slides along the maps.
// cp.async brings the next maps while these are multiplied. Each
// thread keeps 4 x 4 complex sums of one frequency.
// What limits it: with few images the filters' spectra, each used once
// for each image; with many the loads from shared memory, 8 for 64
// multiply-adds.
//
// Launch: grid (ceil(frequencies / FREQUENCIES), ceil(K / FILTERS),
// ceil(images / SPECTRA)), block FREQUENCIES * FILTERS/4 * SPECTRA/4.
// SPECTRA is a define.

#include "../gemm/async.cuh"

constexpr int FREQUENCIES = 8, FILTERS = 32, MAPS = 4;
constexpr int DOWN = SPECTRA / 4, ACROSS = FILTERS / 4;
constexpr int THREADS = FREQUENCIES * DOWN * ACROSS;

// Begins to copy MAPS maps of ROWS spectra from `from` [rows, C,
// frequencies]; `rows`, `maps` and `width` are what is left of it in
// each direction, zeros stand beyond.
template <int ROWS>
__device__ inline void fetch(float2 (*to)[ROWS][FREQUENCIES],
                             const float2* from, int C,
                             int frequencies, int rows, int maps,
                             int width) {
  for (int i = threadIdx.x; i < MAPS * ROWS * FREQUENCIES;
       i += THREADS) {
    int f = i % FREQUENCIES, row = i / FREQUENCIES % ROWS;
    int c = i / (FREQUENCIES * ROWS);
    bool inside = row < rows && c < maps && f < width;
    size_t at = ((size_t)row * C + c) * frequencies + f;
    copy_async<8>(&to[c][row][f], from + (inside ? at : 0), inside);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) fft_multiply(
    const float2* __restrict__ X,  // [images, C, frequencies]
    const float2* __restrict__ W,  // [K, C, frequencies]
    float2* __restrict__ Y,        // [images, K, frequencies]
    int images, int K, int C, int frequencies) {
  __shared__ __align__(16) float2 Xs[2][MAPS][SPECTRA][FREQUENCIES];
  __shared__ __align__(16) float2 Ws[2][MAPS][FILTERS][FREQUENCIES];
  int f0 = blockIdx.x * FREQUENCIES;
  int k0 = blockIdx.y * FILTERS, n0 = blockIdx.z * SPECTRA;
  int f = threadIdx.x % FREQUENCIES;
  int x = threadIdx.x / FREQUENCIES % ACROSS;  // its first filter
  int y = threadIdx.x / FREQUENCIES / ACROSS;  // its first image

  const float2* from_x = X + (size_t)n0 * C * frequencies + f0;
  const float2* from_w = W + (size_t)k0 * C * frequencies + f0;
  auto next_maps = [&](int stage, int c) {
    size_t at = (size_t)c * frequencies;
    if (c < C) {
      fetch<SPECTRA>(Xs[stage], from_x + at, C, frequencies,
                     images - n0, C - c, frequencies - f0);
      fetch<FILTERS>(Ws[stage], from_w + at, C, frequencies, K - k0,
                     C - c, frequencies - f0);
    }
    close_group();
  };

  float2 sum[4][4] = {};
  next_maps(0, 0);
  for (int c0 = 0, now = 0; c0 < C; c0 += MAPS, now ^= 1) {
    next_maps(now ^ 1, c0 + MAPS);
    wait_groups<1>();
    __syncthreads();
#pragma unroll
    for (int c = 0; c < MAPS; ++c) {
      float2 a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = Xs[now][c][y + i * DOWN][f];
#pragma unroll
      for (int j = 0; j < 4; ++j) b[j] = Ws[now][c][x + j * ACROSS][f];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[i][j].x += a[i].x * b[j].x;
          sum[i][j].x += a[i].y * b[j].y;
          sum[i][j].y += a[i].y * b[j].x;
          sum[i][j].y -= a[i].x * b[j].y;
        }
    }
    __syncthreads();
  }

  if (f0 + f >= frequencies) return;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int n = n0 + y + i * DOWN, k = k0 + x + j * ACROSS;
      if (n < images && k < K)
        Y[((size_t)n * K + k) * frequencies + f0 + f] = sum[i][j];
    }
}
