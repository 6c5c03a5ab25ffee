// y = x W^T + b, one thread per element of y.
//
// Idea: the definition. A thread multiplies a row of x by a row of W
// and adds b. PyTorch stores W as [N, K]: one row per output.
// What limits it: memory. The lanes of a warp read 32 rows of W, K
// floats apart: 32 sectors for 32 floats. Every number is read again
// for each result that needs it.
//
// Launch: grid (ceil(N / BLOCK), ceil(M / BLOCK)), block (BLOCK,
// BLOCK). BLOCK is a define.

extern "C" __global__ void
__launch_bounds__(BLOCK * BLOCK) linear_naive(
    const float* __restrict__ x,  // [M, K]
    const float* __restrict__ W,  // [N, K]
    const float* __restrict__ b,  // [N]
    float* __restrict__ y,        // [M, N]
    int M, int N, int K) {
  int m = blockIdx.y * BLOCK + threadIdx.y;
  int n = blockIdx.x * BLOCK + threadIdx.x;
  if (m >= M || n >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k)
    sum += x[(size_t)m * K + k] * W[(size_t)n * K + k];
  y[(size_t)m * N + n] = sum + b[n];
}
