// Convolution by FFT in tiles, the output: the inverse transform of
// each tile, and the pixels that are right.
//
// Idea: the input step in reverse. A thread loads a column of
// frequencies, adds the parts of the product, and transforms it. The
// rows follow. In the last rows and columns of a tile the window wraps
// around to its start, and these pixels are not stored. Bias and ReLU
// are applied on the way.
// What limits it: memory traffic. It reads T*T + 4 floats for a tile.
//
// Launch: grid (ceil(tiles / TILES), K), block TILES * T/2. T and TILES
// are defines.

#include "conv.cuh"
#include "fft.cuh"
#include "fft_tile.cuh"
#include "layer.cuh"

// Returns the sum over all parts of one complex number of Z.
__device__ inline Complex load_sum(const float* Z, int f, size_t stride,
                                   int parts) {
  Complex sum = {0.0f, 0.0f};
  for (int part = 0; part < parts; ++part) {
    const float* z = Z + 2 * ((size_t)part * FREQUENCIES + f) * stride;
    sum.re += z[0], sum.im += z[stride];
  }
  return sum;
}

// Transforms one complex column back: frequencies of Z to a tile.
__device__ inline void invert_column(const float* Z, size_t stride,
                                     int parts, int column, float* tile) {
  float re[T], im[T];
  if (column > 0) {
#pragma unroll
    for (int k = 0; k < T; ++k) {
      Complex z = load_sum(Z, (column - 1) * T + k, stride, parts);
      re[k] = z.re, im[k] = z.im;
    }
  } else {
#pragma unroll
    for (int k = 0; k <= T / 2; ++k)
      join(load_sum(Z, EDGE + k, stride, parts),
           load_sum(Z, EDGE + PAIRS + 1 + k, stride, parts), k, re, im);
  }
  Transform<T, 1>::run(re, im);
#pragma unroll
  for (int i = 0; i < T; ++i) {
    tile[i * T + 2 * column] = re[i];
    tile[i * T + 2 * column + 1] = im[i];
  }
}

// Transforms rows 2 * pair and 2 * pair + 1 back to pixels, in place.
__device__ inline void invert_rows(float* tile, int pair) {
  float *row_a = tile + 2 * pair * T, *row_b = row_a + T;
  float re[T], im[T];
  re[0] = row_a[0], im[0] = row_b[0];
  re[T / 2] = row_a[1], im[T / 2] = row_b[1];
#pragma unroll
  for (int k = 1; k < T / 2; ++k)
    join(Complex{row_a[2 * k], row_a[2 * k + 1]},
         Complex{row_b[2 * k], row_b[2 * k + 1]}, k, re, im);
  Transform<T, 1>::run(re, im);
#pragma unroll
  for (int i = 0; i < T; ++i) row_a[i] = re[i], row_b[i] = im[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) fft_tiled_output(
    const float* __restrict__ Z,     // [parts, FREQUENCIES, 2, K,
                                     //  round_up_4(tiles)]
    const float* __restrict__ bias,  // b [K], or unused
    float* __restrict__ output,      // y [N, K, P, Q]
    Conv shape, Tiling tiling, Layer layer, int parts) {
  __shared__ float values[TILES * PITCH];
  __shared__ int image[TILES], top[TILES], left[TILES];
  int first = blockIdx.x * TILES, filter = blockIdx.y;
  int tiles = shape.N * tiling.down * tiling.across;
  int row_length = round_up_4(tiles);  // of Z
  if (threadIdx.x < TILES) {
    int tile = first + threadIdx.x;
    int tile_row = tile / tiling.across % tiling.down;
    image[threadIdx.x] =
        tile < tiles ? tile / (tiling.down * tiling.across) : -1;
    top[threadIdx.x] = tile_row * tiling.step_h;
    left[threadIdx.x] = tile % tiling.across * tiling.step_w;
  }
  int lane = threadIdx.x % TILES, part = threadIdx.x / TILES;
  if (first + lane < row_length)
    invert_column(Z + (size_t)filter * row_length + first + lane,
                  (size_t)shape.K * row_length, parts, part,
                  values + lane * PITCH);
  __syncthreads();
  if (first + lane < row_length)
    invert_rows(values + lane * PITCH, part);
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < TILES * T * T; i += THREADS) {
    int tile = i / (T * T), n = image[tile], row = i / T % T, column = i % T;
    int p = top[tile] + row, q = left[tile] + column;  // at stride 1
    if (n < 0 || row >= tiling.step_h || column >= tiling.step_w) continue;
    if (shape.u * shape.v > 1) {
      if (p % shape.u || q % shape.v) continue;
      p /= shape.u, q /= shape.v;
    }
    if (p >= shape.P || q >= shape.Q) continue;
    size_t line = ((size_t)n * shape.K + filter) * shape.P + p;
    output[line * shape.Q + q] =
        apply_bias_relu(values[tile * PITCH + i % (T * T)], bias, filter,
                        layer);
  }
}
