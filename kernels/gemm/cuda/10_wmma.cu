// Tensor cores: a warp multiplies 16 x 16 by 16 x 16 at a time.
//
// Idea: with nvcuda::wmma a warp holds matrices instead of numbers.
// Its 32 lanes share a fragment of A and one of B, fp16 or bf16.
// mma_sync adds their product to a fragment of FP32 sums. One such
// call is 4,096 multiply-adds. The FMA units need 128 instructions of
// a warp for them.
// What limits it: the tensor cores wait for data. First the tiles go
// through registers to shared memory, while nothing is multiplied.
// Then the fragments are loaded: fp16 by ldmatrix, bf16 by loads of 4
// bytes that are then transposed. bf16 therefore takes twice as long.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 32 lanes for each
// WM x WN of the tile. Dynamic shared memory: tile_a and tile_b, or
// tile_c if that is larger. BM, BN, BK, WM, WN and BF16 are defines.

#include <mma.h>

using namespace nvcuda;

#if BF16
typedef __nv_bfloat16 Half;
#else
typedef half Half;
#endif

constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
// Unused elements after each row of a tile avoid bank conflicts.
constexpr int PAD = 8;

// Copies a tile [ROWS, COLS] to shared memory. In the matrix X
// [rows, cols] it begins at (row, col); elements beyond X become
// zero. A thread copies a Piece at a time: 8 elements, or one.
template <typename Piece, int ROWS, int COLS>
__device__ inline void load_tile(Half (*tile)[COLS + PAD],
                                 const Half* X, int rows, int cols,
                                 int row, int col) {
  constexpr int ELEMENTS = sizeof(Piece) / sizeof(Half);
#pragma unroll 8
  for (int first = 0; first < ROWS * COLS / ELEMENTS;
       first += THREADS) {
    int element = (first + threadIdx.x) * ELEMENTS;
    int tile_row = element / COLS, x_row = row + tile_row;
    int tile_col = element % COLS, x_col = col + tile_col;
    bool inside = x_row < rows && x_col < cols;
    size_t x_index = inside ? (size_t)x_row * cols + x_col : 0;
    Piece piece = *(const Piece*)(X + x_index);  // without a branch
    *(Piece*)&tile[tile_row][tile_col] = inside ? piece : Piece{};
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) wmma(
    const Half* __restrict__ A,    // [M, K]
    const Half* __restrict__ B,    // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(128) char shared[];
  auto tile_a = (Half(*)[BK + PAD])shared;         // [BM, BK]
  auto tile_b = (Half(*)[BN + PAD])(tile_a + BM);  // [BK, BN]
  auto tile_c = (float(*)[BN + PAD])shared;  // [BM, BN], at the end
  // The block's tile begins here in C.
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The warp's part begins here in the block's tile.
  int warp = threadIdx.x / 32;
  int warp_row = warp / (BN / WN) * WM;
  int warp_col = warp % (BN / WN) * WN;

  wmma::fragment<wmma::accumulator, 16, 16, 16, float>
      sum[WM / 16][WN / 16];
  for (int i = 0; i < WM / 16; ++i)
    for (int j = 0; j < WN / 16; ++j)
      wmma::fill_fragment(sum[i][j], 0.0f);
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
    if (K % 8 == 0)  // each row begins at a multiple of 16 bytes
      load_tile<int4, BM, BK>(tile_a, A, M, K, block_row, k_tile);
    else
      load_tile<Half, BM, BK>(tile_a, A, M, K, block_row, k_tile);
    if (N % 8 == 0)
      load_tile<int4, BK, BN>(tile_b, B, K, N, k_tile, block_col);
    else
      load_tile<Half, BK, BN>(tile_b, B, K, N, k_tile, block_col);
    __syncthreads();
    for (int k = 0; k < BK; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, Half,
                     wmma::row_major> a[WM / 16];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, Half,
                     wmma::row_major> b[WN / 16];
      for (int i = 0; i < WM / 16; ++i)
        wmma::load_matrix_sync(
            a[i], &tile_a[warp_row + i * 16][k], BK + PAD);
      for (int j = 0; j < WN / 16; ++j)
        wmma::load_matrix_sync(
            b[j], &tile_b[k][warp_col + j * 16], BN + PAD);
      for (int i = 0; i < WM / 16; ++i)
        for (int j = 0; j < WN / 16; ++j)
          wmma::mma_sync(sum[i][j], a[i], b[j], sum[i][j]);
    }
    __syncthreads();
  }

  // The layout of the sums over the lanes is not documented. They go
  // through shared memory, and each warp stores whole rows of C.
  for (int i = 0; i < WM / 16; ++i)
    for (int j = 0; j < WN / 16; ++j)
      wmma::store_matrix_sync(&tile_c[warp_row + i * 16]
                                     [warp_col + j * 16],
                              sum[i][j], BN + PAD,
                              wmma::mem_row_major);
  __syncthreads();
  for (int e = threadIdx.x; e < BM * BN; e += THREADS) {
    int tile_row = e / BN, m = block_row + tile_row;
    int tile_col = e % BN, n = block_col + tile_col;
    if (m >= M || n >= N) continue;
    size_t c_index = (size_t)m * N + n;
    C[c_index] = alpha * tile_c[tile_row][tile_col] +
                 (beta != 0 ? beta * C0[c_index] : 0.0f);
  }
}
