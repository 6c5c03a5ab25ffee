// SGEMM with neighbouring threads on neighbouring columns.
//
// Idea: the definition again, C = A x B with one thread per
// element of C. The lanes of a warp are in one row now. They
// load the same float of A and neighbouring floats of B. They
// store neighbouring floats of C.
// What limits it: two loads for each multiply-add. Every thread
// that needs a float of A or B loads it again.
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
