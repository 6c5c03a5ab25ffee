// Convolution by FFT, the product: at each frequency, the sum over the
// channels of input times conjugate filter.
//
// Idea: in the spectra, sliding a filter over an image is one complex
// product for each frequency. The conjugate makes it a correlation.
// With many channels and filters this is a matrix product at each
// frequency, [images x C] by [C x K]. It is tiled like other products.
// A block computes SPECTRA images x FILTERS filters at FREQUENCIES
// frequencies, which are contiguous in memory. While the block
// multiplies, cp.async copies the next channels. Each thread has 4 x 4
// complex sums of one frequency.
// What limits it: with few images, the loads of the filters' spectra,
// each used once for each image. With many images, the loads from
// shared memory: 8 for 64 multiply-adds.
//
// Launch: grid (ceil(frequencies / FREQUENCIES), ceil(K / FILTERS),
// ceil(images / SPECTRA)), block FREQUENCIES * FILTERS/4 * SPECTRA/4.
// SPECTRA is a define.

#include "../../cuda/async.cuh"

constexpr int FREQUENCIES = 8, FILTERS = 32, MAPS = 4;  // of a tile
constexpr int DOWN = SPECTRA / 4, ACROSS = FILTERS / 4;  // threads
constexpr int THREADS = FREQUENCIES * DOWN * ACROSS;

// Begins to copy MAPS channels of ROWS spectra from `spectra` [rows, C,
// frequencies] to `tile`. `rows_left`, `channels_left` and
// `frequencies_left` are what the array has from here on. Elements
// outside become zero.
template <int ROWS>
__device__ inline void load_spectra(float2 (*tile)[ROWS][FREQUENCIES],
                                    const float2* spectra, int C,
                                    int frequencies, int rows_left,
                                    int channels_left,
                                    int frequencies_left) {
  for (int i = threadIdx.x; i < MAPS * ROWS * FREQUENCIES;
       i += THREADS) {
    int frequency = i % FREQUENCIES, row = i / FREQUENCIES % ROWS;
    int c = i / (FREQUENCIES * ROWS);
    bool inside = row < rows_left && c < channels_left &&
                  frequency < frequencies_left;
    size_t offset = ((size_t)row * C + c) * frequencies + frequency;
    copy_async<8>(&tile[c][row][frequency],
                  spectra + (inside ? offset : 0), inside);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) fft_multiply(
    const float2* __restrict__ X,  // input [images, C, frequencies]
    const float2* __restrict__ W,  // filters [K, C, frequencies]
    float2* __restrict__ Y,        // output [images, K, frequencies]
    int images, int K, int C, int frequencies) {
  __shared__ __align__(16) float2 tile_x[2][MAPS][SPECTRA][FREQUENCIES];
  __shared__ __align__(16) float2 tile_w[2][MAPS][FILTERS][FREQUENCIES];
  int block_frequency = blockIdx.x * FREQUENCIES;
  int block_k = blockIdx.y * FILTERS, block_n = blockIdx.z * SPECTRA;
  int frequency = threadIdx.x % FREQUENCIES;
  int thread_k = threadIdx.x / FREQUENCIES % ACROSS;  // first filter
  int thread_n = threadIdx.x / FREQUENCIES / ACROSS;  // first image

  const float2* block_x =
      X + (size_t)block_n * C * frequencies + block_frequency;
  const float2* block_w =
      W + (size_t)block_k * C * frequencies + block_frequency;
  auto load_tiles = [&](int stage, int c_tile) {
    size_t offset = (size_t)c_tile * frequencies;
    if (c_tile < C) {
      load_spectra<SPECTRA>(tile_x[stage], block_x + offset, C,
                            frequencies, images - block_n, C - c_tile,
                            frequencies - block_frequency);
      load_spectra<FILTERS>(tile_w[stage], block_w + offset, C,
                            frequencies, K - block_k, C - c_tile,
                            frequencies - block_frequency);
    }
    close_group();
  };

  float2 sum[4][4] = {};
  load_tiles(0, 0);
  for (int c_tile = 0, stage = 0; c_tile < C;
       c_tile += MAPS, stage ^= 1) {
    load_tiles(stage ^ 1, c_tile + MAPS);
    wait_groups<1>();
    __syncthreads();
#pragma unroll
    for (int c = 0; c < MAPS; ++c) {
      float2 x[4], w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = tile_x[stage][c][thread_n + i * DOWN][frequency];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        w[j] = tile_w[stage][c][thread_k + j * ACROSS][frequency];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[i][j].x += x[i].x * w[j].x;
          sum[i][j].x += x[i].y * w[j].y;
          sum[i][j].y += x[i].y * w[j].x;
          sum[i][j].y -= x[i].x * w[j].y;
        }
    }
    __syncthreads();
  }

  if (block_frequency + frequency >= frequencies) return;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int n = block_n + thread_n + i * DOWN;
      int k = block_k + thread_k + j * ACROSS;
      if (n < images && k < K)
        Y[((size_t)n * K + k) * frequencies + block_frequency +
          frequency] = sum[i][j];
    }
}
