// SGEMM with neighbouring threads on neighbouring columns.
//
// Idea: the definition again, C = A x B with one thread per
// element of C. Lanes walk along a row now: they share a float of
// A, read floats of B side by side and store side by side. What
// limits it: two loads for every multiply-add, and each float of
// A and B is asked for again by every thread that needs it.
//
// Launch: grid (ceil(N / 16), ceil(M / 16)), block (16, 16).

extern "C" __global__ void sgemm_naive(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k)
    sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  C[(size_t)row * N + col] = sum;
}
