// Convolution by FFT in tiles, the filters: each becomes the spectrum of
// a tile of T x T numbers with its taps in the corner.
//
// Idea: a filter has few taps in a row, so a row's frequency is a sum
// of S terms. A thread computes one column of row frequencies as sums.
// Then it transforms the column in its registers. Spectra are
// conjugated here, once: the product of spectra is then a correlation.
// They are divided by T*T here too. Neighbouring lanes have
// neighbouring filters, so stores are contiguous.
// What limits it: memory traffic. It writes T*T + 4 floats for R*S.
//
// Launch: grid (ceil(round_up_4(K) / TILES), C), block TILES * T/2,
// TILES * (R*S rounded up to an odd number) floats of shared memory. T
// is the define SIZE. TILES is a define.

#include "conv.cuh"
#include "fft.cuh"
#include "fft_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fft_tiled_filter(
    const float* __restrict__ filters,  // w [K, C, R, S]
    float* __restrict__ U,  // [FREQUENCIES, 2, C, round_up_4(K)]
    Conv shape) {
  extern __shared__ float values[];  // [TILES, pitch]
  __shared__ float turn_re[T], turn_im[T];
  int first = blockIdx.x * TILES, c = blockIdx.y;
  int taps = shape.R * shape.S, pitch = taps | 1;
  if (threadIdx.x < T)
    sincospif(2.0f / T * threadIdx.x, &turn_im[threadIdx.x],
              &turn_re[threadIdx.x]);
  for (int i = threadIdx.x / 32; i < TILES; i += THREADS / 32)
    for (int tap = threadIdx.x % 32; tap < taps; tap += 32) {
      size_t source = ((size_t)(first + i) * shape.C + c) * taps;
      source += shape.flip ? taps - 1 - tap : tap;
      values[i * pitch + tap] =
          first + i < shape.K ? filters[source] : 0.0f;
    }
  __syncthreads();

  int lane = threadIdx.x % TILES, column = threadIdx.x / TILES;
  if (first + lane >= round_up_4(shape.K)) return;
  const float* tap = values + lane * pitch;
  float re[T], im[T];
  int next_row = 0, left = shape.R;  // of the filter
#pragma unroll
  for (int i = 0; i < T; ++i) {
    re[i] = im[i] = 0.0f;
    if (i != next_row || left == 0) continue;
    for (int s = 0; s < shape.S; ++s, ++tap) {
      int x = s * shape.dilation_w;
      float weight = *tap * (1.0f / (T * T));
      re[i] += weight * turn_re[x * column % T];
      if (column > 0)  // clockwise
        im[i] -= weight * turn_im[x * column % T];
      else  // the imaginary part is column T/2
        im[i] += x % 2 ? -weight : weight;
    }
    next_row += shape.dilation_h, --left;
  }
  Transform<T, -1>::run(re, im);
  if (column > 0) {
#pragma unroll
    for (int k = 0; k < T; ++k) im[k] = -im[k];
  } else {  // both real columns: the conjugate of a frequency is at T - k
#pragma unroll
    for (int k = 1; k < T / 2; ++k) {
      float re_k = re[k], im_k = im[k];
      re[k] = re[T - k], im[k] = im[T - k];
      re[T - k] = re_k, im[T - k] = im_k;
    }
  }
  int row_length = round_up_4(shape.K);
  store_column(re, im, column, U + (size_t)c * row_length + first + lane,
               shape.C * row_length);
}
