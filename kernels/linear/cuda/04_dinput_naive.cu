// dx = dy W, one thread per element of dx.
//
// Idea: the definition. The gradient of an input is the sum of the
// gradients of all N outputs, each times the weight between them.
// What limits it: memory. Every number is read again for each result
// that needs it. But the lanes of a warp read 32 neighbours of a row
// of W: here W needs no transpose.
//
// Launch: grid (ceil(K / BLOCK), ceil(M / BLOCK)), block (BLOCK,
// BLOCK). BLOCK is a define.

extern "C" __global__ void
__launch_bounds__(BLOCK * BLOCK) dinput_naive(
    const float* __restrict__ dy,  // [M, N]
    const float* __restrict__ W,   // [N, K]
    float* __restrict__ dx,        // [M, K]
    int M, int N, int K) {
  int m = blockIdx.y * BLOCK + threadIdx.y;
  int k = blockIdx.x * BLOCK + threadIdx.x;
  if (m >= M || k >= K) return;
  float sum = 0.0f;
  for (int n = 0; n < N; ++n)
    sum += dy[(size_t)m * N + n] * W[(size_t)n * K + k];
  dx[(size_t)m * K + k] = sum;
}
