// SGEMM through squares in shared memory: C = A x B.
//
// Idea: a block brings a TILE x TILE square of A and one of B
// into shared memory, where each float is used TILE times, then
// moves on along K. Squares that stick out are filled with zeros.
// What limits it: two loads from shared memory for every
// multiply-add.
//
// Launch: grid (ceil(N / TILE), ceil(M / TILE)), block (TILE,
// TILE). TILE is a define.

extern "C" __global__ void sgemm_shared(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
  __shared__ float As[TILE][TILE];
  __shared__ float Bs[TILE][TILE];
  int x = threadIdx.x, y = threadIdx.y;
  int row = blockIdx.y * TILE + y;
  int col = blockIdx.x * TILE + x;
  float sum = 0.0f;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    bool a = row < M && k0 + x < K;
    bool b = col < N && k0 + y < K;
    As[y][x] = a ? A[(size_t)row * K + k0 + x] : 0.0f;
    Bs[y][x] = b ? B[(size_t)(k0 + y) * N + col] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
