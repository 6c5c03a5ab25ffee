// Direct convolution from shared memory, several outputs a thread.
//
// Idea: a block owns TILE x TILE output pixels of one image, for a
// few filters of one group. It brings the patch of the input under
// them and the filters' taps into shared memory, CHUNK maps at a
// time. A thread sums TP pixels for TK filters: for every tap it
// reads TP + TK floats and does TP * TK multiply-adds with them.
// What limits it: what does not fit. A patch overlaps its neighbours,
// a 7 x 7 output fills a fifth of a 16 x 16 tile, and a group with
// fewer filters than TK leaves sums unused.
//
// Launch: grid (ceil(P / TILE) * ceil(Q / TILE),
// groups * ceil(K / groups / (TK * z)), N), block (TILE, TILE / TP,
// z); dynamic shared memory for CHUNK patches and the taps in them.
// TILE, TK, TP and CHUNK are defines.

#include "conv.cuh"
#include "layer.cuh"

constexpr int ROWS = TILE / TP;  // of threads; pixels lie so far apart

// Taps of one map and all filters of the block: [R * S] rows, padded
// so that the lanes that write a column of it meet few banks twice.
__device__ inline int pitch() { return blockDim.z * TK + 4; }

// The patch of `maps` maps from `x` on, its first pixel at (h0, w0);
// zeros in the padding.
__device__ inline void fetch_patch(float* patch, const float* x,
                                   const Conv& s, int maps, int h0,
                                   int w0, int high, int wide) {
  int row = threadIdx.z * ROWS + threadIdx.y;
  for (int c = 0; c < maps; ++c, x += (size_t)s.H * s.W)
    for (int i = row; i < high; i += ROWS * blockDim.z)
      for (int j = threadIdx.x; j < wide; j += TILE) {
        int h = h0 + i, w = w0 + j;
        bool inside = 0 <= h && h < s.H && 0 <= w && w < s.W;
        float value = inside ? x[(size_t)h * s.W + w] : 0.0f;
        patch[(c * high + i) * wide + j] = value;
      }
}

// The taps of `maps` maps of `filters` filters from `w` on, each
// filter `next` floats behind the one before; zeros for the filters
// beyond. A flipped filter is turned here.
__device__ inline void fetch_taps(float* taps, const float* w,
                                  const Conv& s, int maps,
                                  int filters, size_t next) {
  int area = s.R * s.S, each = maps * area;  // of a filter
  int first = (threadIdx.z * ROWS + threadIdx.y) * TILE + threadIdx.x;
  int step = TILE * ROWS * blockDim.z, count = blockDim.z * TK * each;
  for (int i = first; i < count; i += step) {
    int k = i / each, from = i % each;
    int to = from;
    if (s.flip) to += area - 1 - 2 * (from % area);
    taps[to * pitch() + k] = k < filters ? w[k * next + from] : 0.0f;
  }
}

// The thread's taps: four at a time, where their place allows it.
__device__ inline void read(float (&f)[TK], const float* tap) {
#pragma unroll
  for (int k = 0; k < TK; ++k) {
    if (TK % 4 == 0 && k % 4 == 0)
      *(float4*)&f[k] = *(const float4*)&tap[k];
    if (TK % 4) f[k] = tap[k];
  }
}

extern "C" __global__ void 
__launch_bounds__(256, 2) direct_tiled(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ w,  // [K, C / groups, R, S]
    const float* __restrict__ b,  // [K], read if there is a bias
    float* __restrict__ y,        // [N, K, P, Q]
    Conv s, Layer layer) {
  extern __shared__ __align__(16) float shared[];
  int C = s.C / layer.groups, K = s.K / layer.groups;
  int high = (TILE - 1) * s.u + (s.R - 1) * s.dilation_h + 1;
  int wide = (TILE - 1) * s.v + (s.S - 1) * s.dilation_w + 1;
  float* taps = shared;  // [CHUNK, R, S, pitch]
  float* patch = taps + min(CHUNK, C) * s.R * s.S * pitch();

  int across = (s.Q + TILE - 1) / TILE;  // tiles along a row
  int p0 = blockIdx.x / across * TILE + threadIdx.y;
  int q = blockIdx.x % across * TILE + threadIdx.x;
  int per_group = gridDim.y / layer.groups;  // blocks
  int group = blockIdx.y / per_group, n = blockIdx.z;
  int k0 = blockIdx.y % per_group * blockDim.z * TK;  // in the group
  int mine = threadIdx.z * TK;  // the thread's first filter
  x += ((size_t)n * s.C + (size_t)group * C) * s.H * s.W;
  w += (size_t)(group * K + k0) * C * s.R * s.S;

  float sum[TP][TK] = {};
  for (int c0 = 0; c0 < C; c0 += CHUNK) {
    int maps = min(CHUNK, C - c0);
    fetch_patch(patch, x + (size_t)c0 * s.H * s.W, s, maps,
                (p0 - (int)threadIdx.y) * s.u - s.pad_h,
                (q - (int)threadIdx.x) * s.v - s.pad_w, high, wide);
    fetch_taps(taps, w + (size_t)c0 * s.R * s.S, s, maps, K - k0,
               (size_t)C * s.R * s.S);
    __syncthreads();
    float part[TP][TK] = {};  // short sums lose less than long ones
    const float* tap = taps + mine;
    for (int c = 0; c < maps; ++c)
      for (int r = 0; r < s.R; ++r)
        for (int t = 0; t < s.S; ++t, tap += pitch()) {
          const float* from = patch + t * s.dilation_w +
              threadIdx.x * s.v + wide * (c * high +
              r * s.dilation_h + threadIdx.y * s.u);
          __align__(16) float f[TK];
          read(f, tap);
#pragma unroll
          for (int i = 0; i < TP; ++i) {
            float value = from[i * ROWS * s.u * wide];
#pragma unroll
            for (int k = 0; k < TK; ++k) part[i][k] += value * f[k];
          }
        }
#pragma unroll
    for (int i = 0; i < TP; ++i)
#pragma unroll
      for (int k = 0; k < TK; ++k) sum[i][k] += part[i][k];
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < TP; ++i)
#pragma unroll
    for (int k = 0; k < TK; ++k) {
      int p = p0 + i * ROWS, row = k0 + mine + k;
      if (p >= s.P || q >= s.Q || row >= K) continue;
      row += group * K;
      y[(((size_t)n * s.K + row) * s.P + p) * s.Q + q] =
          finished(sum[i][k], b, row, layer);
    }
}
