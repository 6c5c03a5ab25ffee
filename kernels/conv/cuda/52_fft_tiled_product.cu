// Convolution by FFT in tiles, the products: Z[f] = U[f]^T V[f] for
// each frequency f, in complex numbers.
//
// Idea: the batch of matrix products of 09_winograd_product.cu, with
// two planes for the real and the imaginary parts. A thread adds 8 x 4
// complex sums. For each channel it loads 24 floats and computes 128
// multiply-adds: a complex product has four. With many channels and
// few tiles the channels are cut into parts of `terms`, one block for
// each. The next kernel adds the parts.
// What limits it: multiply-adds.
//
// Launch: grid (ceil(round_up_4(tiles) / BN), ceil(K / BM), frequencies
// * parts), block (BM / 8) * (BN / 4). BM filters x BN tiles, BK
// channels at a time, STAGES tiles in shared memory.

#include "../../cuda/async.cuh"

constexpr int THREADS = (BM / 8) * (BN / 4);
constexpr int WM = 32, WN = 32;  // of a warp, 8 x 4 of a lane
constexpr int ACROSS = WN / 4;   // lanes along a row of the tile
constexpr int U_COPIES = 2 * BK * BM / 4 / THREADS;  // of a thread
constexpr int V_COPIES = 2 * BK * BN / 4 / THREADS;

// One thread's share of the copies of a tile [2, BK, EXTENT].
template <int EXTENT, int COPIES>
struct Copies {
  const float* from[COPIES];
  bool inside[COPIES];

  __device__ static int row(int i) {  // of [2 * BK]
    return (threadIdx.x + i * THREADS) / (EXTENT / 4);
  }
  __device__ static int column(int i) {
    return (threadIdx.x + i * THREADS) % (EXTENT / 4) * 4;
  }
  __device__ void begin(const float* matrix, int first, int length,
                        int begin_c, int C) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      size_t plane = row(i) / BK;  // 0 real, 1 imaginary
      inside[i] = first + column(i) < length;
      from[i] = matrix + (plane * C + begin_c + row(i) % BK) * length +
                first + column(i);
    }
  }
  __device__ void next(float* tile, int c, int end, int length) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      copy_async<16>(tile + row(i) * EXTENT + column(i), from[i],
                     inside[i] && c + row(i) % BK < end);
      from[i] += (size_t)BK * length;
    }
  }
};

extern "C" __global__ void
__launch_bounds__(THREADS, 512 / THREADS) fft_tiled_product(
    const float* __restrict__ U,  // [frequencies, 2, C, round_up_4(K)]
    const float* __restrict__ V,  // [frequencies, 2, C,
                                  //  round_up_4(tiles)]
    float* __restrict__ Z,        // [parts, frequencies, 2, K,
                                  //  round_up_4(tiles)]
    int K, int C, int v_length, int frequencies, int terms) {
  __shared__ __align__(16) float tile_u[STAGES][2][BK][BM];
  __shared__ __align__(16) float tile_v[STAGES][2][BK][BN];
  int u_length = (K + 3) / 4 * 4;  // of a row
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;  // of Z
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int thread_row = warp / (BN / WN) * WM  // of its first sum
                 + (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int thread_col = warp % (BN / WN) * WN + lane / 2 % ACROSS * 4;
  size_t frequency = blockIdx.z % frequencies;
  int begin = blockIdx.z / frequencies * terms;
  int end = min(begin + terms, C);
  Copies<BM, U_COPIES> copies_u;
  Copies<BN, V_COPIES> copies_v;
  copies_u.begin(U + frequency * 2 * C * u_length, block_row, u_length,
                 begin, C);
  copies_v.begin(V + frequency * 2 * C * v_length, block_col, v_length,
                 begin, C);

  // Begins to copy the next tiles, from channel c on.
  auto load_tiles = [&](int stage, int c) {
    copies_u.next(&tile_u[stage][0][0][0], c, end, u_length);
    copies_v.next(&tile_v[stage][0][0][0], c, end, v_length);
    close_group();
  };
  for (int i = 0; i < STAGES - 1; ++i) load_tiles(i, begin + i * BK);

  float re[8][4] = {}, im[8][4] = {};  // sums
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int c_tile = begin; c_tile < end; c_tile += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    load_tiles(fill_stage, c_tile + (STAGES - 1) * BK);
#pragma unroll
    for (int c = 0; c < BK; ++c) {
      __align__(16) float a[2][8], b[2][4];
#pragma unroll
      for (int plane = 0; plane < 2; ++plane) {
        float* row = &tile_u[read_stage][plane][c][thread_row];
        *(float4*)&a[plane][0] = *(float4*)row;
        *(float4*)&a[plane][4] = *(float4*)(row + WM / 2);
        *(float4*)&b[plane][0] =
            *(float4*)&tile_v[read_stage][plane][c][thread_col];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          re[i][j] += a[0][i] * b[0][j];
          im[i][j] += a[0][i] * b[1][j];
          re[i][j] -= a[1][i] * b[1][j];
          im[i][j] += a[1][i] * b[0][j];
        }
    }
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }

  int tile = block_col + thread_col;
  if (tile >= v_length) return;
  Z += (size_t)blockIdx.z * 2 * K * v_length + tile;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    int k = block_row + thread_row + i / 4 * (WM / 2) + i % 4;
    if (k >= K) continue;
    *(float4*)&Z[(size_t)k * v_length] = *(float4*)&re[i][0];
    *(float4*)&Z[((size_t)K + k) * v_length] = *(float4*)&im[i][0];
  }
}
