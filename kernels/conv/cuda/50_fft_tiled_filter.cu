// Convolution by FFT in tiles, the filters: each becomes a tile of
// T x T numbers, its taps in the corner, and is transformed.
//
// Idea: a block transforms TILES filters of one channel in shared
// memory. Rows without taps are zero before and after their transform,
// so only the rows with taps are transformed. The spectra are
// conjugated here, once: the product of spectra is then a correlation.
// The division by T*T is done here too. Neighbouring lanes have
// neighbouring filters, so stores are contiguous.
// What limits it: memory traffic. It writes T*T + 4 floats for R*S.
//
// Launch: grid (ceil(round_up_4(K) / TILES), C), block TILES * T/2. T
// is the define SIZE. TILES is a define.

#include "conv.cuh"
#include "fft.cuh"
#include "fft_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fft_tiled_filter(
    const float* __restrict__ filters,  // w [K, C, R, S]
    float* __restrict__ U,  // [FREQUENCIES, 2, C, round_up_4(K)]
    Conv shape) {
  __shared__ float values[TILES * PITCH];
  int first = blockIdx.x * TILES, c = blockIdx.y;
  int rows = (shape.R - 1) * shape.dilation_h + 1;  // with taps
  int row_length = round_up_4(shape.K);             // of U
  for (int i = threadIdx.x; i < TILES * PITCH; i += THREADS)
    values[i] = 0.0f;
  __syncthreads();
  int taps = shape.R * shape.S;
  for (int i = threadIdx.x; i < TILES * taps; i += THREADS) {
    int filter = i / taps, tap = i % taps;
    int r = tap / shape.S, s = tap % shape.S;
    if (first + filter >= shape.K) break;
    size_t source = ((size_t)(first + filter) * shape.C + c) * taps;
    source += shape.flip ? taps - 1 - tap : tap;
    values[filter * PITCH + r * shape.dilation_h * T +
           s * shape.dilation_w] = filters[source] * (1.0f / (T * T));
  }
  __syncthreads();

  int lane = threadIdx.x % TILES, part = threadIdx.x / TILES;
  float* tile = values + lane * PITCH;
  if (2 * part < rows) transform_rows(tile, part);
  __syncthreads();
  if (first + lane >= row_length) return;
  float re[T], im[T];
#pragma unroll
  for (int i = 0; i < T; ++i) {
    re[i] = i < rows ? tile[i * T + 2 * part] : 0.0f;
    im[i] = i < rows ? tile[i * T + 2 * part + 1] : 0.0f;
  }
  Transform<T, -1>::run(re, im);
  store_column<-1>(re, im, part, U + (size_t)c * row_length + first + lane,
                   shape.C * row_length);
}
