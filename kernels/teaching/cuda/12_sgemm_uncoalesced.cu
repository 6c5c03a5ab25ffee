// SGEMM with neighbouring threads on neighbouring rows: C = A x
// B.
//
// Idea: the definition, one thread per element of C, but with
// the axes exchanged: a warp has 16 rows of 2 columns. Each row
// of A and of C is in a sector of its own.
// What limits it: 16 sectors per request of A and C. With rows
// and columns as usual it would be 2 and 4.
//
// Launch: grid (ceil(M / 16), ceil(N / 16)), block (16, 16).

extern "C" __global__ void sgemm_uncoalesced(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k)
    sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  C[(size_t)row * N + col] = sum;
}
