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
// Launch: grid (ceil(round_up_4(tiles) / TILES), C), block TILES *
// T/2. T is the define SIZE. TILES is a define.

#include "conv.cuh"
#include "fft.cuh"
#include "fft_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fft_tiled_input(
    const float* __restrict__ input,  // x [N, C, H, W]
    float* __restrict__ V,  // [FREQUENCIES, 2, C, round_up_4(tiles)]
    Conv shape, Tiling tiling) {
  __shared__ float values[TILES * PITCH];
  __shared__ Corner corners[TILES];
  int first = blockIdx.x * TILES, c = blockIdx.y;
  int tiles = shape.N * tiling.down * tiling.across;
  int row_length = round_up_4(tiles);  // of V
  if (threadIdx.x < TILES)
    corners[threadIdx.x] = corner_of(first + threadIdx.x, tiles, tiling,
                                     shape.C, c, shape.H * shape.W);
  __syncthreads();
#pragma unroll 8
  for (int tile = threadIdx.x / (T * T); tile < TILES; tile += TILE_STEP)
    for (int pixel = threadIdx.x % (T * T); pixel < T * T;
         pixel += THREADS) {
      Corner corner = corners[tile];
      unsigned h = corner.top - shape.pad_h + pixel / T;
      unsigned w = corner.left - shape.pad_w + pixel % T;
      bool inside = h < (unsigned)shape.H && w < (unsigned)shape.W;
      values[tile * PITCH + pixel] =
          inside ? input[corner.map + (int)(h * shape.W + w)] : 0.0f;
    }
  __syncthreads();

  int lane = threadIdx.x % TILES, part = threadIdx.x / TILES;
  float* tile = values + lane * PITCH;
  transform_rows(tile, part);
  __syncthreads();
  if (first + lane >= row_length) return;
  float re[T], im[T];
#pragma unroll
  for (int i = 0; i < T; ++i)
    re[i] = tile[i * T + 2 * part], im[i] = tile[i * T + 2 * part + 1];
  Transform<T, -1>::run(re, im);
  store_column<1>(re, im, part, V + (size_t)c * row_length + first + lane,
                  shape.C * row_length);
}
