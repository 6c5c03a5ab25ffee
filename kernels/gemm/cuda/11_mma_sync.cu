// Tensor cores by their own instruction, and kept fed.
//
// Idea: mma.sync multiplies 16 x 16 by 16 x 8 in one instruction of
// a warp, from fragments whose places in the lanes are known. So the
// warp fills them by ldmatrix, from tiles swizzled so that no two
// rows meet in a bank; loads the next fragments while it multiplies
// these; and copies STAGES tiles ahead by cp.async, past the
// registers.
// What limits it: Hopper's tensor cores run at their full rate only
// for wgmma, which reads shared memory itself.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 32 lanes for each
// WM x WN of the tile; dynamic shared memory for STAGES times As and
// Bs. BM, BN, BK, WM, WN, STAGES, GROUP and BF16 are defines.

#include "mma.cuh"

constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int STEPS = BK / 16;            // 16 of k each
constexpr int STAGE = BM * BK + BK * BN;  // elements

// What a warp multiplies in one step.
struct Fragments {
  unsigned a[WM / 16][4];  // 16 x 16 each
  unsigned b[WN / 16][4];  // 16 x 16 each: two of 16 x 8
};

// Begins to copy the part-th of STEPS parts of a tile [ROWS, COLS]:
// this thread's pieces, from (row, col) at *from on down. `rows` x
// `cols` are left of the matrix, what lies beyond becomes zeros.
template <int ROWS, int COLS>
__device__ inline void fetch(Half* tile, const Half* from, int row,
                             int col, int rows, int cols, int pitch,
                             int part) {
  constexpr int PASS = THREADS / (COLS / 8);  // rows at a time
  constexpr int PART = ROWS / STEPS;
  static_assert(PASS > 0 && PART % PASS == 0, "passes fill a part");
  if (col >= cols) rows = 0;
#pragma unroll
  for (int i = part * PART; i < (part + 1) * PART; i += PASS)
    copy_async<16>(tile + swizzled<COLS>(row + i, col),
                   from + (size_t)i * pitch, row + i < rows);
}

__device__ inline void load(Fragments& f, const Half* As, int row,
                            int col, int step) {
  const Half* Bs = As + BM * BK;
  int r = threadIdx.x % 16, c = threadIdx.x % 32 / 16 * 8;
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
    load_matrices(f.a[i], As + swizzled<BK>(row + i * 16 + r,
                                            step * 16 + c));
#pragma unroll
  for (int j = 0; j < WN / 16; ++j)
    load_transposed(f.b[j], Bs + swizzled<BN>(step * 16 + r,
                                              col + j * 16 + c));
}

__device__ inline void multiply(float (&sum)[WM / 16][WN / 8][4],
                                const Fragments& f) {
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
#pragma unroll
    for (int j = 0; j < WN / 8; ++j) {
      // Back and forth: at each turn the b just used is used again,
      // and is still in the operand cache.
      int n = i % 2 ? WN / 8 - 1 - j : j;
      multiply_add(sum[i][n], f.a[i], f.b[n / 2][n % 2 * 2],
                   f.b[n / 2][n % 2 * 2 + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) mma_sync(
    const Half* __restrict__ A,    // [M, K]
    const Half* __restrict__ B,    // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(128) char shared[];
  auto As = (Half*)shared;  // [BM, BK], STAGES times
  auto Bs = As + BM * BK;   // [BK, BN], after each As
  // Blocks go down GROUP tiles before they go right by one, so that
  // those that run together share rows of A and columns of B in L2.
  int block = blockIdx.y * gridDim.x + blockIdx.x;
  int band = block / (GROUP * gridDim.x) * GROUP;
  int high = min((int)gridDim.y - band, GROUP);
  block -= band * gridDim.x;
  int m0 = (band + block % high) * BM, n0 = block / high * BN;
  int warp = threadIdx.x / 32;
  int row = warp / (BN / WN) * WM;  // the warp's part of the tile
  int col = warp % (BN / WN) * WN;

  float sum[WM / 16][WN / 8][4] = {};
  Fragments f[2];
  if (K % 8 == 0 && N % 8 == 0) {  // rows begin on 16 bytes
    int ra = threadIdx.x / (BK / 8), ca = threadIdx.x % (BK / 8) * 8;
    int rb = threadIdx.x / (BN / 8), cb = threadIdx.x % (BN / 8) * 8;
    A += (size_t)(m0 + ra) * K + ca;
    B += (size_t)rb * N + n0 + cb;
    auto fetch_part = [&](int stage, int k0, int part) {
      fetch<BM, BK>(As + stage * STAGE, A + k0, ra, ca, M - m0,
                    K - k0, K, part);
      fetch<BK, BN>(Bs + stage * STAGE, B + (size_t)k0 * N, rb, cb,
                    K - k0, N - n0, N, part);
    };
    for (int s = 0; s < STAGES - 1; ++s) {
      for (int part = 0; part < STEPS; ++part)
        fetch_part(s, s * BK, part);
      close_group();
    }
    wait_groups<STAGES - 2>();
    __syncthreads();
    load(f[0], As, row, col, 0);
    int read = 0, filled = STAGES - 1;  // stages
#pragma unroll 1
    for (int k0 = 0; k0 < K; k0 += BK)
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        fetch_part(filled, k0 + (STAGES - 1) * BK, step);
        if (step == STEPS - 1) {
          close_group();
          wait_groups<STAGES - 2>();  // the next stage is there,
          __syncthreads();            // and all have read this one
          filled = read;
          read = read + 1 < STAGES ? read + 1 : 0;
        }
        load(f[(step + 1) % 2], As + read * STAGE, row, col,
             (step + 1) % STEPS);
        multiply(sum, f[step % 2]);
      }
    wait_groups<0>();
  } else {
    for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll 1
      for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
        int m = m0 + i / BK, k = k0 + i % BK;
        bool inside = m < M && k < K;
        As[swizzled<BK>(i / BK, i % BK)] =
            inside ? A[(size_t)m * K + k] : Half(0);
      }
#pragma unroll 1
      for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
        int k = k0 + i / BN, n = n0 + i % BN;
        bool inside = k < K && n < N;
        Bs[swizzled<BN>(i / BN, i % BN)] =
            inside ? B[(size_t)k * N + n] : Half(0);
      }
      __syncthreads();
#pragma unroll 1
      for (int step = 0; step < STEPS; ++step) {
        load(f[0], As, row, col, step);
        multiply(sum, f[0]);
      }
      __syncthreads();
    }
  }

  // A lane has two neighbours of a row at a time, and three others
  // the rest of the sector.
  row += threadIdx.x % 32 / 4;
  col += threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
#pragma unroll
    for (int j = 0; j < WN / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int m = m0 + row + i * 16 + h * 8, n = n0 + col + j * 8;
        if (m >= M || n >= N) continue;
        size_t e = (size_t)m * N + n;
        bool both = n + 1 < N;
        float2 c = make_float2(alpha * sum[i][j][h * 2],
                               alpha * sum[i][j][h * 2 + 1]);
        if (beta != 0) {
          c.x += beta * C0[e];
          if (both) c.y += beta * C0[e + 1];
        }
        if (N % 2 == 0) {  // rows begin on 8 bytes
          *(float2*)&C[e] = c;
        } else {
          C[e] = c.x;
          if (both) C[e + 1] = c.y;
        }
      }
}
