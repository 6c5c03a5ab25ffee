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
// Launch: grid (ceil(tiles / TILES), K), block TILES * T/2. T
// is the define SIZE. TILES is a define.

#include "conv.cuh"
#include "fft.cuh"
#include "fft_tile.cuh"
#include "layer.cuh"

// Adds the frequencies of one complex column of Z to re and im.
__device__ inline void add_column(const float* Z, int stride, int column,
                                  float (&re)[T], float (&im)[T]) {
  if (column > 0) {
    Z += (size_t)(2 * (column - 1) * T) * stride;
#pragma unroll
    for (int k = 0; k < T; ++k) {
      re[k] += Z[(size_t)(2 * k) * stride];
      im[k] += Z[(size_t)(2 * k + 1) * stride];
    }
    return;
  }
  Z += (size_t)(2 * EDGE) * stride;
#pragma unroll
  for (int k = 0; k <= T / 2; ++k) {
    const float* edge = Z + (size_t)(2 * (PAIRS + 1)) * stride;
    Complex a = {Z[(size_t)(2 * k) * stride],
                 Z[(size_t)(2 * k + 1) * stride]};
    Complex b = {edge[(size_t)(2 * k) * stride],
                 edge[(size_t)(2 * k + 1) * stride]};
    add_joined(a, b, k, re, im);
  }
}

// Transforms rows 2 * pair and 2 * pair + 1 back to pixels, in place.
__device__ inline void invert_rows(float* tile, int pair) {
  float *row_a = tile + 2 * pair * T, *row_b = row_a + T;
  float re[T] = {}, im[T] = {};
  re[0] = row_a[0], im[0] = row_b[0];
  re[T / 2] = row_a[1], im[T / 2] = row_b[1];
#pragma unroll
  for (int k = 1; k < T / 2; ++k)
    add_joined(Complex{row_a[2 * k], row_a[2 * k + 1]},
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
  __shared__ Corner corners[TILES];
  int first = blockIdx.x * TILES, filter = blockIdx.y;
  int tiles = shape.N * tiling.down * tiling.across;
  int row_length = round_up_4(tiles), stride = shape.K * row_length;
  if (threadIdx.x < TILES)
    corners[threadIdx.x] =
        corner_of(first + threadIdx.x, tiles, tiling, shape.K, filter,
                  shape.P * shape.Q);
  int lane = threadIdx.x % TILES, part = threadIdx.x / TILES;
  float* tile_values = values + lane * PITCH;
  if (first + lane < row_length) {
    float re[T] = {}, im[T] = {};
    Z += (size_t)filter * row_length + first + lane;
    add_column(Z, stride, part, re, im);
    for (int i = 1; i < parts; ++i) {
      Z += (size_t)(2 * FREQUENCIES) * stride;
      add_column(Z, stride, part, re, im);
    }
    Transform<T, 1>::run(re, im);
#pragma unroll
    for (int i = 0; i < T; ++i) {
      tile_values[i * T + 2 * part] = re[i];
      tile_values[i * T + 2 * part + 1] = im[i];
    }
  }
  __syncthreads();
  if (first + lane < row_length) invert_rows(tile_values, part);
  __syncthreads();

  bool strided = shape.u * shape.v > 1;
#pragma unroll 8
  for (int tile = threadIdx.x / (T * T); tile < TILES; tile += TILE_STEP)
    for (int pixel = threadIdx.x % (T * T); pixel < T * T;
         pixel += THREADS) {
      if (pixel / T >= tiling.step_h || pixel % T >= tiling.step_w)
        continue;
      Corner corner = corners[tile];
      unsigned p = corner.top + pixel / T;  // at stride 1
      unsigned q = corner.left + pixel % T;
      if (strided) {
        if (p % shape.u || q % shape.v) continue;
        p /= shape.u, q /= shape.v;
      }
      if (p >= (unsigned)shape.P || q >= (unsigned)shape.Q) continue;
      output[corner.map + (int)(p * shape.Q + q)] =
          apply_bias_relu(values[tile * PITCH + pixel], bias, filter,
                          layer);
    }
}
