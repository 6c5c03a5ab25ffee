// Tensor cores: a warp multiplies 16 x 16 by 16 x 16 at a time.
//
// Idea: nvcuda::wmma lets a warp hold matrices instead of numbers.
// Its 32 lanes share out a fragment of A and one of B, fp16 or bf16,
// and mma_sync adds their product to a fragment of FP32 sums. One
// such call is 4,096 multiply-adds; the FMA units need 128 rounds of
// a warp for them.
// What limits it: the tensor cores wait, first for the tiles, which
// go through registers before anything is multiplied, then for the
// fragments.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 32 lanes for each
// WM x WN of the tile; dynamic shared memory for As and Bs or for
// Cs, whichever is more. BM, BN, BK, WM, WN and BF16 are defines.

#include <mma.h>

using namespace nvcuda;

#if BF16
typedef __nv_bfloat16 Half;
#else
typedef half Half;
#endif

constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int PAD = 8;  // elements after each row: off the banks

// Copies a tile [ROWS, COLS], from (row, col) of x [rows, cols] on,
// to shared memory; what lies beyond x becomes zeros. Each thread
// moves a Piece at a time: 8 elements, or one.
template <typename Piece, int ROWS, int COLS>
__device__ inline void fetch(Half (*tile)[COLS + PAD], const Half* x,
                             int rows, int cols, int row, int col) {
  constexpr int EACH = sizeof(Piece) / sizeof(Half);  // elements
#pragma unroll 8
  for (int e = 0; e < ROWS * COLS / EACH; e += THREADS) {
    int i = (e + threadIdx.x) * EACH;
    int r = row + i / COLS, c = col + i % COLS;
    bool inside = r < rows && c < cols;
    size_t at = inside ? (size_t)r * cols + c : 0;  // no branch
    Piece piece = *(const Piece*)(x + at);
    *(Piece*)&tile[i / COLS][i % COLS] = inside ? piece : Piece{};
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) wmma(
    const Half* __restrict__ A,    // [M, K]
    const Half* __restrict__ B,    // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(128) char shared[];
  auto As = (Half(*)[BK + PAD])shared;         // [BM, BK]
  auto Bs = (Half(*)[BN + PAD])(As + BM);      // [BK, BN]
  auto Cs = (float(*)[BN + PAD])shared;        // [BM, BN], at last
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int warp = threadIdx.x / 32;
  int row = warp / (BN / WN) * WM;  // the warp's part of the tile
  int col = warp % (BN / WN) * WN;

  wmma::fragment<wmma::accumulator, 16, 16, 16, float>
      sum[WM / 16][WN / 16];
  for (int i = 0; i < WM / 16; ++i)
    for (int j = 0; j < WN / 16; ++j)
      wmma::fill_fragment(sum[i][j], 0.0f);
  for (int k0 = 0; k0 < K; k0 += BK) {
    if (K % 8 == 0)  // rows begin on 16 bytes
      fetch<int4, BM, BK>(As, A, M, K, m0, k0);
    else
      fetch<Half, BM, BK>(As, A, M, K, m0, k0);
    if (N % 8 == 0)
      fetch<int4, BK, BN>(Bs, B, K, N, k0, n0);
    else
      fetch<Half, BK, BN>(Bs, B, K, N, k0, n0);
    __syncthreads();
    for (int k = 0; k < BK; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, Half,
                     wmma::row_major> a[WM / 16];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, Half,
                     wmma::row_major> b[WN / 16];
      for (int i = 0; i < WM / 16; ++i)
        wmma::load_matrix_sync(a[i], &As[row + i * 16][k], BK + PAD);
      for (int j = 0; j < WN / 16; ++j)
        wmma::load_matrix_sync(b[j], &Bs[k][col + j * 16], BN + PAD);
      for (int i = 0; i < WM / 16; ++i)
        for (int j = 0; j < WN / 16; ++j)
          wmma::mma_sync(sum[i][j], a[i], b[j], sum[i][j]);
    }
    __syncthreads();
  }

  // Which lane holds which sum is the hardware's secret: they go
  // through shared memory, and each warp writes whole rows.
  for (int i = 0; i < WM / 16; ++i)
    for (int j = 0; j < WN / 16; ++j)
      wmma::store_matrix_sync(&Cs[row + i * 16][col + j * 16],
                              sum[i][j], BN + PAD,
                              wmma::mem_row_major);
  __syncthreads();
  for (int e = threadIdx.x; e < BM * BN; e += THREADS) {
    int m = m0 + e / BN, n = n0 + e % BN;
    if (m >= M || n >= N) continue;
    size_t i = (size_t)m * N + n;
    C[i] = alpha * Cs[e / BN][e % BN] +
           (beta != 0 ? beta * C0[i] : 0.0f);
  }
}
