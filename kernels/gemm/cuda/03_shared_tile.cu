// Tiles of A and B in shared memory.
//
// Idea: a block computes a BM x BN tile of C, each thread one element
// of it. The block moves along K in steps of BK. In each step it
// copies a tile of A and a tile of B into shared memory. Each value
// is loaded from global memory once and then used BN or BM times.
// What limits it: still two loads for every multiply-add, now from
// shared memory.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block BM * BN. BM, BN
// and BK are defines.

constexpr int THREADS = BM * BN;

extern "C" __global__ void __launch_bounds__(THREADS) shared_tile(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  __shared__ float tile_a[BM][BK];
  __shared__ float tile_b[BK][BN];
  // The block's tile begins here in C.
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The thread loads these elements of tile_a and tile_b first.
  int load_a_row = threadIdx.x / BK, load_a_col = threadIdx.x % BK;
  int load_b_row = threadIdx.x / BN, load_b_col = threadIdx.x % BN;
  // The thread computes this element of the block's tile.
  int thread_row = threadIdx.x / BN, thread_col = threadIdx.x % BN;
  int row = block_row + thread_row, col = block_col + thread_col;

  float sum = 0.0f;
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
#pragma unroll
    for (int offset = 0; offset < BM; offset += THREADS / BK) {
      int m = block_row + load_a_row + offset;
      int k = k_tile + load_a_col;
      bool inside = m < M && k < K;
      tile_a[load_a_row + offset][load_a_col] =
          inside ? A[(size_t)m * K + k] : 0.0f;
    }
#pragma unroll
    for (int offset = 0; offset < BK; offset += THREADS / BN) {
      int k = k_tile + load_b_row + offset;
      int n = block_col + load_b_col;
      bool inside = k < K && n < N;
      tile_b[load_b_row + offset][load_b_col] =
          inside ? B[(size_t)k * N + n] : 0.0f;
    }
    __syncthreads();  // both tiles are complete
    for (int k = 0; k < BK; ++k)
      sum += tile_a[thread_row][k] * tile_b[k][thread_col];
    __syncthreads();  // all threads have read them
  }

  if (row >= M || col >= N) return;
  size_t c_index = (size_t)row * N + col;
  C[c_index] = alpha * sum + (beta != 0 ? beta * C0[c_index] : 0.0f);
}
