// SGEMM through tiles in shared memory: C = A x B.
//
// Idea: a block loads a TILE x TILE tile of A and one of B into
// shared memory. There each float is used TILE times. Then the
// block loads the next tiles along K. Elements outside the
// matrices are loaded as zero.
// What limits it: two loads from shared memory for each
// multiply-add.
//
// Launch: grid (ceil(N / TILE), ceil(M / TILE)), block (TILE,
// TILE). TILE is a define.

extern "C" __global__ void sgemm_shared(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];
  int thread_col = threadIdx.x, thread_row = threadIdx.y;
  int row = blockIdx.y * TILE + thread_row;
  int col = blockIdx.x * TILE + thread_col;
  float sum = 0.0f;
  for (int k_tile = 0; k_tile < K; k_tile += TILE) {
    bool a_inside = row < M && k_tile + thread_col < K;
    bool b_inside = col < N && k_tile + thread_row < K;
    tile_a[thread_row][thread_col] =
        a_inside ? A[(size_t)row * K + k_tile + thread_col]
                 : 0.0f;
    tile_b[thread_row][thread_col] =
        b_inside ? B[(size_t)(k_tile + thread_row) * N + col]
                 : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k)
      sum += tile_a[thread_row][k] * tile_b[k][thread_col];
    __syncthreads();
  }
  if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
