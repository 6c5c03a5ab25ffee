// dW = dy^T x, one thread per element of dW.
//
// Idea: the definition. A weight connects input k and output n. Its
// gradient is the sum of dy[m, n] * x[m, k] over all M rows.
// What limits it: memory. Every number is read again for each result
// that needs it.
//
// Launch: grid (ceil(K / BLOCK), ceil(N / BLOCK)), block (BLOCK,
// BLOCK). BLOCK is a define.

extern "C" __global__ void
__launch_bounds__(BLOCK * BLOCK) dweight_naive(
    const float* __restrict__ dy,  // [M, N]
    const float* __restrict__ x,   // [M, K]
    float* __restrict__ dW,        // [N, K]
    int M, int N, int K) {
  int n = blockIdx.y * BLOCK + threadIdx.y;
  int k = blockIdx.x * BLOCK + threadIdx.x;
  if (n >= N || k >= K) return;
  float sum = 0.0f;
  for (int m = 0; m < M; ++m)
    sum += dy[(size_t)m * N + n] * x[(size_t)m * K + k];
  dW[(size_t)n * K + k] = sum;
}
