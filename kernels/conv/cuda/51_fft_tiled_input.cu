// Convolution by FFT in tiles, the input: each channel is cut into
// overlapping tiles of T x T pixels, and each tile is transformed.
//
// Idea: conv/fft writes padded tiles and cuFFT reads them again. Here
// a block loads TILES tiles of one channel into shared memory. It
// transforms their rows, then their columns, and writes only spectra.
// In shared memory a tile has an odd pitch: 32 lanes with the same row
// of 32 tiles use 32 banks. Neighbouring lanes have neighbouring tiles,
// so stores are contiguous.
// What limits it: memory traffic. It writes T*T + 4 floats for a tile.
//
// Launch: grid (ceil(round_up_4(tiles) / TILES), C), block TILES * T/2.
// T and TILES are defines.

#include "conv.cuh"
#include "fft.cuh"
#include "fft_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fft_tiled_input(
    const float* __restrict__ input,  // x [N, C, H, W]
    float* __restrict__ V,  // [FREQUENCIES, 2, C, round_up_4(tiles)]
    Conv shape, Tiling tiling) {
  __shared__ float values[TILES * PITCH];
  __shared__ int image[TILES], top[TILES], left[TILES];
  int first = blockIdx.x * TILES, c = blockIdx.y;
  int tiles = shape.N * tiling.down * tiling.across;
  int row_length = round_up_4(tiles);  // of V
  if (threadIdx.x < TILES) {
    int tile = first + threadIdx.x;
    int tile_row = tile / tiling.across % tiling.down;
    image[threadIdx.x] =
        tile < tiles ? tile / (tiling.down * tiling.across) : -1;
    top[threadIdx.x] = tile_row * tiling.step_h - shape.pad_h;
    left[threadIdx.x] =
        tile % tiling.across * tiling.step_w - shape.pad_w;
  }
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < TILES * T * T; i += THREADS) {
    int tile = i / (T * T), n = image[tile];
    int h = top[tile] + i / T % T, w = left[tile] + i % T;
    bool inside = n >= 0 && 0 <= h && h < shape.H && 0 <= w && w < shape.W;
    size_t row = ((size_t)n * shape.C + c) * shape.H + h;
    values[tile * PITCH + i % (T * T)] =
        inside ? input[row * shape.W + w] : 0.0f;
  }
  __syncthreads();

  int lane = threadIdx.x % TILES, part = threadIdx.x / TILES;
  transform_rows(values + lane * PITCH, part);
  __syncthreads();
  if (first + lane >= row_length) return;
  transform_column(values + lane * PITCH, part, T, 1.0f, 1.0f,
                   V + (size_t)c * row_length + first + lane,
                   (size_t)shape.C * row_length);
}
