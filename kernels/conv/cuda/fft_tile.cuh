// 2-D transforms of T x T tiles, for conv/fft-tiled.
//
// A tile is real. Half of its spectrum is the conjugate of the other
// half and is not stored. Two rows are one complex transform: row a is
// its real part, row b its imaginary part. A row's columns 0 and T/2
// are real and share one complex column. So T/2 rows and T/2 columns
// of T points transform a tile. One thread transforms one of them in
// its registers. TILES tiles of a block are in shared memory.

constexpr int T = SIZE;                  // rows and columns, a define
constexpr int PAIRS = T / 2;             // of rows of a tile
constexpr int THREADS = TILES * PAIRS;   // one for each transform
constexpr int PITCH = T * T + 1;         // of a tile: odd, no conflicts
constexpr int EDGE = (PAIRS - 1) * T;    // first frequency of column 0
constexpr int FREQUENCIES = EDGE + 2 * (PAIRS + 1);

__device__ inline int round_up_4(int extent) {
  return (extent + 3) / 4 * 4;
}

// Returns cos(2 pi k / 32), 0 <= k < 32.
__device__ inline float cosine(int k) {
  const float quarter[9] = {1.0f,        0.98078528f, 0.92387953f,
                            0.83146961f, 0.70710678f, 0.55557023f,
                            0.38268343f, 0.19509032f, 0.0f};
  if (k > 16) k = 32 - k;
  return k > 8 ? -quarter[16 - k] : quarter[k];
}

// Transforms N complex numbers in registers: DIRECTION -1 forward, 1
// back without the factor 1 / N. The even and the odd numbers are
// transformed first, then combined (Cooley and Tukey).
template <int N, int DIRECTION>
struct Transform {
  __device__ static inline void run(float (&re)[N], float (&im)[N]) {
    float even_re[N / 2], even_im[N / 2], odd_re[N / 2], odd_im[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      even_re[i] = re[2 * i], even_im[i] = im[2 * i];
      odd_re[i] = re[2 * i + 1], odd_im[i] = im[2 * i + 1];
    }
    Transform<N / 2, DIRECTION>::run(even_re, even_im);
    Transform<N / 2, DIRECTION>::run(odd_re, odd_im);
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      float turned_re = odd_re[k], turned_im = odd_im[k];
      if (4 * k == N) {
        turned_re = -DIRECTION * odd_im[k];
        turned_im = DIRECTION * odd_re[k];
      } else if (k > 0) {
        int angle = 32 / N * k;  // of 32 in a circle
        float c = cosine(angle), s = DIRECTION * cosine((angle + 24) % 32);
        turned_re = c * odd_re[k] - s * odd_im[k];
        turned_im = c * odd_im[k] + s * odd_re[k];
      }
      re[k] = even_re[k] + turned_re, im[k] = even_im[k] + turned_im;
      re[k + N / 2] = even_re[k] - turned_re;
      im[k + N / 2] = even_im[k] - turned_im;
    }
  }
};
template <int DIRECTION>
struct Transform<1, DIRECTION> {
  __device__ static inline void run(float (&)[1], float (&)[1]) {}
};

struct Complex {
  float re, im;
};

// Returns frequency k of real signal a, from the transform of a + i b.
__device__ inline Complex split_a(const float (&re)[T],
                                  const float (&im)[T], int k) {
  int mirror = (T - k) % T;
  return {0.5f * (re[k] + re[mirror]), 0.5f * (im[k] - im[mirror])};
}

// Returns frequency k of real signal b.
__device__ inline Complex split_b(const float (&re)[T],
                                  const float (&im)[T], int k) {
  int mirror = (T - k) % T;
  return {0.5f * (im[k] + im[mirror]), 0.5f * (re[mirror] - re[k])};
}

// Adds frequencies k and T - k of a + i b, from those of a and b.
__device__ inline void add_joined(Complex a, Complex b, int k,
                                  float (&re)[T], float (&im)[T]) {
  re[k] += a.re - b.im, im[k] += a.im + b.re;
  if (k == 0 || 2 * k == T) return;
  re[T - k] += a.re + b.im, im[T - k] += b.re - a.im;
}

// Transforms rows 2 * pair and 2 * pair + 1 of a tile [T, T] in place.
// A row becomes T/2 complex numbers. The first is (column 0, column
// T/2), both real.
__device__ inline void transform_rows(float* tile, int pair) {
  float *row_a = tile + 2 * pair * T, *row_b = row_a + T;
  float re[T], im[T];
#pragma unroll
  for (int i = 0; i < T; ++i) re[i] = row_a[i], im[i] = row_b[i];
  Transform<T, -1>::run(re, im);
  row_a[0] = re[0], row_a[1] = re[T / 2];
  row_b[0] = im[0], row_b[1] = im[T / 2];
#pragma unroll
  for (int k = 1; k < T / 2; ++k) {
    Complex a = split_a(re, im, k), b = split_b(re, im, k);
    row_a[2 * k] = a.re, row_a[2 * k + 1] = a.im;
    row_b[2 * k] = b.re, row_b[2 * k + 1] = b.im;
  }
}

// Writes the frequencies of one complex column to a matrix of spectra
// [FREQUENCIES, 2], whose elements are `stride` floats apart. SIGN is
// -1 for conjugates, else 1.
template <int SIGN>
__device__ inline void store_column(const float (&re)[T],
                                    const float (&im)[T], int column,
                                    float* spectra, int stride) {
  if (column > 0) {
    spectra += (size_t)(2 * (column - 1) * T) * stride;
#pragma unroll
    for (int k = 0; k < T; ++k) {
      spectra[(size_t)(2 * k) * stride] = re[k];
      spectra[(size_t)(2 * k + 1) * stride] = SIGN * im[k];
    }
    return;
  }
  spectra += (size_t)(2 * EDGE) * stride;
#pragma unroll
  for (int k = 0; k <= T / 2; ++k) {
    Complex a = split_a(re, im, k), b = split_b(re, im, k);
    float* edge = spectra + (size_t)(2 * (PAIRS + 1)) * stride;
    spectra[(size_t)(2 * k) * stride] = a.re;
    spectra[(size_t)(2 * k + 1) * stride] = SIGN * a.im;
    edge[(size_t)(2 * k) * stride] = b.re;
    edge[(size_t)(2 * k + 1) * stride] = SIGN * b.im;
  }
}

// Where a tile of a block begins: its map in x or y, and the row and
// the column in it. A tile that does not exist begins far outside.
struct alignas(16) Corner {
  long long map;  // floats before it
  int top, left;
};
constexpr int OUTSIDE = -(1 << 30);
__device__ inline Corner corner_of(int tile, int tiles,
                                   const Tiling& tiling, int maps,
                                   int map, int area) {
  if (tile >= tiles) return {0, OUTSIDE, OUTSIDE};
  int row = tile / tiling.across;  // counted through all images
  return {((long long)(row / tiling.down) * maps + map) * area,
          row % tiling.down * tiling.step_h,
          tile % tiling.across * tiling.step_w};
}

// The tiles and pixels that a thread copies: neighbouring lanes have
// neighbouring pixels.
constexpr int TILE_STEP = THREADS > T * T ? THREADS / (T * T) : 1;
