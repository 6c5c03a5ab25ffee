// 8-bit integers: four multiply-adds in one instruction.
//
// Idea: __dp4a reads two registers of four int8 each. It multiplies
// them pair by pair and adds the four products to an int32. The four
// numbers of a register must be neighbours along k. In a row of A
// they are neighbours in memory. Of B a thread loads 4 x 4 bytes from
// four rows. It transposes them with __byte_perm on the way to shared
// memory. The rest is as in the FP32 kernels: tiles in shared memory,
// TM x TN sums per thread. Integer sums are exact in any order.
// What limits it: dp4a itself. The tensor cores multiply int8 too.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int KP = BK / 4;  // registers along k, four int8 each
constexpr int WIDE = KP < 8 ? KP : 8;  // neighbours along k
constexpr int FOURS = BM * KP / THREADS;        // of A, per thread
constexpr int SQUARES = KP * BN / 4 / THREADS;  // of B, 4 x 4 each
// Two blocks share an SM if there are enough registers. This is an
// estimate per thread, which the compiler has to keep.
constexpr int REGISTERS =
    TM * TN + TM + TN + FOURS + 4 * SQUARES + 40;
constexpr int BLOCKS = 2 * THREADS * REGISTERS <= 65536 ? 2 : 1;

// Loads four neighbours, the first into the lowest byte. `left` of
// them belong to the row; the others become zero.
template <bool ALIGNED>
__device__ inline int load_four(const signed char* from, int left) {
  if (ALIGNED) return left > 0 ? *(const int*)from : 0;
  int four = 0;
#pragma unroll 1
  for (int e = 0; e < 4 && e < left; ++e)
    four |= (from[e] & 255) << 8 * e;
  return four;
}

// Transposes 4 x 4 bytes: a register of `rows` is a row, a register
// of the result is a column.
__device__ inline int4 transposed(const int (&rows)[4]) {
  int low01 = __byte_perm(rows[0], rows[1], 0x5140);  // columns 0, 1
  int high01 = __byte_perm(rows[0], rows[1], 0x7362);  // 2 and 3
  int low23 = __byte_perm(rows[2], rows[3], 0x5140);
  int high23 = __byte_perm(rows[2], rows[3], 0x7362);
  return make_int4(__byte_perm(low01, low23, 0x5410),
                   __byte_perm(low01, low23, 0x7632),
                   __byte_perm(high01, high23, 0x5410),
                   __byte_perm(high01, high23, 0x7632));
}

// The place of the i-th four of A in tile_a: x is its column, y its
// row. First come WIDE neighbours along k, which go to different
// banks. Then the next rows of A follow, then the next WIDE.
__device__ inline int2 place_of_four(int i) {
  return {i / WIDE % BM, i / (WIDE * BM) * WIDE + i % WIDE};
}

// Loads this thread's part of the tiles at k_tile into registers.
template <bool ALIGNED>
__device__ inline void load_tiles(
    int (&a)[FOURS], int (&b)[SQUARES][4],
    const signed char* A,  // [M, K]
    const signed char* B,  // [K, N]
    int M, int N, int K, int block_row, int block_col, int k_tile) {
#pragma unroll
  for (int e = 0; e < FOURS; ++e) {
    int2 place = place_of_four(e * THREADS + threadIdx.x);
    int m = block_row + place.x, k = k_tile + place.y * 4;
    a[e] = load_four<ALIGNED>(A + (size_t)m * K + k,
                              m < M ? K - k : 0);
  }
#pragma unroll
  for (int e = 0; e < SQUARES; ++e) {
    int square = e * THREADS + threadIdx.x;
    int k = k_tile + square / (BN / 4) * 4;
    int n = block_col + square % (BN / 4) * 4;
#pragma unroll
    for (int r = 0; r < 4; ++r)
      b[e][r] = load_four<ALIGNED>(B + (size_t)(k + r) * N + n,
                                   k + r < K ? N - n : 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
dp4a(
    const signed char* __restrict__ A,  // [M, K]
    const signed char* __restrict__ B,  // [K, N]
    const int* __restrict__ C0,  // [M, N], read if beta is not 0
    int* __restrict__ C,         // [M, N]
    int M, int N, int K, int alpha, int beta) {
  // Each int is four int8 along k. Four unused columns of tile_a
  // avoid bank conflicts.
  __shared__ __align__(16) int tile_a[KP][BM + 4];
  __shared__ __align__(16) int tile_b[KP][BN];
  // The block's tile begins here in C.
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The first of the thread's 4 x 4 squares begins here.
  int thread_row = threadIdx.x / (BN / TN) * 4;
  int thread_col = threadIdx.x % (BN / TN) * 4;

  int next_a[FOURS], next_b[SQUARES][4];
  auto load_next = [&](int k_tile) {
    if (K % 4 == 0 && N % 4 == 0)  // rows begin at multiples of 4
      load_tiles<true>(next_a, next_b, A, B, M, N, K, block_row,
                       block_col, k_tile);
    else
      load_tiles<false>(next_a, next_b, A, B, M, N, K, block_row,
                        block_col, k_tile);
  };
  load_next(0);

  int sum[TM][TN] = {};
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
#pragma unroll
    for (int e = 0; e < FOURS; ++e) {
      int2 place = place_of_four(e * THREADS + threadIdx.x);
      tile_a[place.y][place.x] = next_a[e];
    }
#pragma unroll
    for (int e = 0; e < SQUARES; ++e) {
      int square = e * THREADS + threadIdx.x;
      int tile_row = square / (BN / 4);
      int tile_col = square % (BN / 4) * 4;
      *(int4*)&tile_b[tile_row][tile_col] = transposed(next_b[e]);
    }
    __syncthreads();
    load_next(k_tile + BK);  // while these tiles are multiplied
#pragma unroll
    for (int k = 0; k < KP; ++k) {
      int a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(int4*)&a[i] =
            *(int4*)&tile_a[k][thread_row + i * (BM / TM)];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(int4*)&b[j] =
            *(int4*)&tile_b[k][thread_col + j * (BN / TN)];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j)
          sum[i][j] = __dp4a(a[i], b[j], sum[i][j]);
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      int m = block_row + thread_row + i / 4 * 4 * (BM / TM) + i % 4;
      int n = block_col + thread_col + j / 4 * 4 * (BN / TN) + j % 4;
      if (m >= M || n >= N) continue;
      size_t c_index = (size_t)m * N + n;
      C[c_index] =
          alpha * sum[i][j] + (beta != 0 ? beta * C0[c_index] : 0);
    }
}
