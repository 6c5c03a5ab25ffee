// Convolution as one matrix product whose data matrix never exists.
//
// Idea: im2col's matrix is a rule, not data: row k stands for one tap
// (c, r, t), column j for one output pixel (n, p, q). So a block
// reads each element of a tile of it from where it lies in the input,
// straight into shared memory, zeros for the padding, while it
// multiplies the tile before. The columns of a thread stay the same
// all along: their windows are found once. k changes at every step
// and must be taken apart; all lanes of a warp share it, and each
// division is a multiplication and a shift (magic.cuh).
// What limits it: four bytes a copy where a matrix could be copied
// by 16, each with an address and a look at the borders.
//
// Launch: grid (ceil(N*P*Q / BN), ceil(K / groups / BM), groups),
// block (BM / TM) * (BN / TN); dynamic shared memory for STAGES
// tiles. BM, BN, BK, TM, TN and STAGES are defines.

#include "implicit.cuh"
#include "magic.cuh"

struct Divisors {
  Magic area, S, pixels, Q;  // R * S, S, P * Q, Q
};

// Where a window lies: its first tap's place in one map [H, W], which
// may be in the padding, and that place as an offset into x.
struct Window {
  int h, w;
  unsigned at;
};

__device__ inline Window window(int column, const Conv& s,
                                const Divisors& by) {
  int pixels = s.P * s.Q;
  int n = divide(column, by.pixels), pixel = column - n * pixels;
  int p = divide(pixel, by.Q), q = pixel - p * s.Q;
  int h = p * s.u - s.pad_h, w = q * s.v - s.pad_w;
  if (s.flip) {  // it is walked from its far corner back
    h += (s.R - 1) * s.dilation_h;
    w += (s.S - 1) * s.dilation_w;
  }
  return {h, w, (unsigned)n * s.C * s.H * s.W + h * s.W + w};
}

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) implicit_gemm(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ w,  // [K, C / groups, R, S]
    const float* __restrict__ b,  // [K], read if there is a bias
    float* __restrict__ y,        // [N, K, P, Q]
    Conv s, Layer layer, Divisors by) {
  extern __shared__ __align__(16) float stages[];
  int C = s.C / layer.groups, rows = s.K / layer.groups;
  int area = s.R * s.S, inner = C * area;
  int pixels = s.P * s.Q, columns = s.N * pixels;
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  x += (size_t)blockIdx.z * C * s.H * s.W;
  int ma = threadIdx.x / KA, ka = threadIdx.x % KA;
  w += ((size_t)blockIdx.z * rows + m0 + ma) * inner + ka;
  y += (size_t)blockIdx.z * rows * pixels;
  if (layer.bias) b += blockIdx.z * rows;

  // A column beyond the last is read from the last one: no sum of it
  // is stored.
  Window mine[COLUMNS];
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j)
    mine[j] = window(min(n0 + lane + 32 * j, columns - 1), s, by);
  int down = s.flip ? -s.dilation_h : s.dilation_h;
  int right = s.flip ? -s.dilation_w : s.dilation_w;

  auto fetch = [&](int stage, int k0) {
    float* As = stages + stage * STAGE;
    float* Bs = As + BK * (BM + 4);
    fetch_filters(As, w + k0, ka, ma, inner - k0, rows - m0, inner);
#pragma unroll
    for (int i = 0; i < BK; i += WARPS) {
      int k = k0 + warp + i;
      int c = divide(k, by.area), tap = k - c * area;
      int r = divide(tap, by.S), t = tap - r * s.S;
      int h = r * down, v = t * right;
      unsigned at = (unsigned)c * s.H * s.W + h * s.W + v;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        bool inside = k < inner &&
                      (unsigned)(mine[j].h + h) < (unsigned)s.H &&
                      (unsigned)(mine[j].w + v) < (unsigned)s.W;
        copy_async<4>(Bs + (warp + i) * BN + lane + 32 * j,
                      x + (unsigned)(mine[j].at + at), inside);
      }
    }
    close_group();
  };
  for (int i = 0; i < STAGES - 1; ++i) fetch(i, i * BK);

  Place at = place();
  auto offset = [&](int column) {
    int n = divide(column, by.pixels);
    return (size_t)n * (s.K - 1) * pixels + column;
  };
  int now = 0, next = STAGES - 1;  // stages to read and to fill
#pragma unroll 1
  for (int k0 = 0; k0 < inner;) {
    bool first = k0 == 0;
    int end = min(k0 + PART, inner);
    float sum[TM][TN] = {};
#pragma unroll 1
    for (; k0 < end; k0 += BK) {
      wait_groups<STAGES - 2>();
      __syncthreads();
      fetch(next, k0 + (STAGES - 1) * BK);
      multiply(sum, stages + now * STAGE, at);
      now = now + 1 == STAGES ? 0 : now + 1;
      next = next + 1 == STAGES ? 0 : next + 1;
    }
    bool last = end == inner;
    if (pixels % 4 == 0)
      store<4>(y, b, sum, m0 + at.row, n0 + at.col, rows, columns,
               pixels, layer, first, last, offset);
    else
      store<1>(y, b, sum, m0 + at.row, n0 + at.col, rows, columns,
               pixels, layer, first, last, offset);
  }
}
