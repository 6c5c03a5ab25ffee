// Integers of 8 bits: four multiply-adds in one instruction.
//
// Idea: __dp4a takes two registers of four int8 each, multiplies
// them pair by pair and adds all four products to an int32. So the
// four numbers of a register must follow each other along k. A row
// of A lies so in memory; of B four rows are read, 4 x 4 bytes, and
// turned on their way to shared memory by __byte_perm. The rest is
// the FP32 kernel's: tiles in shared memory, TM x TN sums a thread.
// Integer sums are exact in any order.
// What limits it: dp4a itself. The tensor cores take int8 as well.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int KP = BK / 4;  // registers along k
constexpr int WIDE = KP < 8 ? KP : 8;  // of them, read side by side
constexpr int FOURS = BM * KP / THREADS;        // of A, by a thread
constexpr int SQUARES = KP * BN / 4 / THREADS;  // of B, 4 x 4 each
// Two blocks share an SM where their registers, about so many a
// thread, leave room: the compiler is held to that.
constexpr int REGISTERS =
    TM * TN + TM + TN + FOURS + 4 * SQUARES + 40;
constexpr int BLOCKS = 2 * THREADS * REGISTERS <= 65536 ? 2 : 1;

// Four neighbours in memory, the first in the lowest byte; beyond
// the `left` that belong to the row there are zeros.
template <bool ALIGNED>
__device__ inline int four(const signed char* from, int left) {
  if (ALIGNED) return left > 0 ? *(const int*)from : 0;
  int out = 0;
#pragma unroll 1
  for (int e = 0; e < 4 && e < left; ++e)
    out |= (from[e] & 255) << 8 * e;
  return out;
}

// 4 x 4 bytes, transposed: in comes a row in each register, out goes
// a column in each.
__device__ inline int4 turned(const int (&row)[4]) {
  int low01 = __byte_perm(row[0], row[1], 0x5140);   // columns 0, 1
  int high01 = __byte_perm(row[0], row[1], 0x7362);  // columns 2, 3
  int low23 = __byte_perm(row[2], row[3], 0x5140);
  int high23 = __byte_perm(row[2], row[3], 0x7362);
  return make_int4(__byte_perm(low01, low23, 0x5410),
                   __byte_perm(low01, low23, 0x7632),
                   __byte_perm(high01, high23, 0x5410),
                   __byte_perm(high01, high23, 0x7632));
}

// Where in As the i-th four of A lies: 8 along k, as many as lie in
// different banks, then all rows down, then the next 8.
__device__ inline int2 place(int i) {
  return {i / WIDE % BM, i / (WIDE * BM) * WIDE + i % WIDE};
}

// Reads this thread's share of the tiles at k0 into registers.
template <bool ALIGNED>
__device__ inline void fetch(int (&a)[FOURS], int (&b)[SQUARES][4],
                             const signed char* A,
                             const signed char* B, int M, int N,
                             int K, int m0, int n0, int k0) {
#pragma unroll
  for (int e = 0; e < FOURS; ++e) {
    int2 at = place(e * THREADS + threadIdx.x);
    int m = m0 + at.x, k = k0 + at.y * 4;
    a[e] = four<ALIGNED>(A + (size_t)m * K + k, m < M ? K - k : 0);
  }
#pragma unroll
  for (int e = 0; e < SQUARES; ++e) {
    int i = e * THREADS + threadIdx.x;
    int k = k0 + i / (BN / 4) * 4, n = n0 + i % (BN / 4) * 4;
#pragma unroll
    for (int r = 0; r < 4; ++r)
      b[e][r] = four<ALIGNED>(B + (size_t)(k + r) * N + n,
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
  __shared__ __align__(16) int As[KP][BM + 4];  // 4: off the banks
  __shared__ __align__(16) int Bs[KP][BN];
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int row = threadIdx.x / (BN / TN) * 4;  // the first of this
  int col = threadIdx.x % (BN / TN) * 4;  // thread's 4 x 4 squares

  int a_next[FOURS], b_next[SQUARES][4];
  auto fetch_tiles = [&](int k0) {
    if (K % 4 == 0 && N % 4 == 0)  // rows begin on 4 bytes
      fetch<true>(a_next, b_next, A, B, M, N, K, m0, n0, k0);
    else
      fetch<false>(a_next, b_next, A, B, M, N, K, m0, n0, k0);
  };
  fetch_tiles(0);

  int sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int e = 0; e < FOURS; ++e) {
      int2 at = place(e * THREADS + threadIdx.x);
      As[at.y][at.x] = a_next[e];
    }
#pragma unroll
    for (int e = 0; e < SQUARES; ++e) {
      int i = e * THREADS + threadIdx.x;
      *(int4*)&Bs[i / (BN / 4)][i % (BN / 4) * 4] =
          turned(b_next[e]);
    }
    __syncthreads();
    fetch_tiles(k0 + BK);  // arrives while these are multiplied
#pragma unroll
    for (int k = 0; k < KP; ++k) {
      int a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(int4*)&a[i] = *(int4*)&As[k][row + i * (BM / TM)];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(int4*)&b[j] = *(int4*)&Bs[k][col + j * (BN / TN)];
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
      int m = m0 + row + i / 4 * 4 * (BM / TM) + i % 4;
      int n = n0 + col + j / 4 * 4 * (BN / TN) + j % 4;
      if (m >= M || n >= N) continue;
      size_t e = (size_t)m * N + n;
      C[e] = alpha * sum[i][j] + (beta != 0 ? beta * C0[e] : 0);
    }
}
