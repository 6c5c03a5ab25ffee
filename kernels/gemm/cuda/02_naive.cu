// One thread per element of C, its warp laid along a row.
//
// Idea: each thread multiplies one row of A by one column of B. The
// lanes of a warp own neighbouring columns of C: for each k they
// read 32 floats of B side by side (4 sectors) and one float of A
// together. Only x and y have changed places.
// What limits it: two loads for every multiply-add. The caches serve
// most of them, but each load keeps the load unit busy for as long
// as four multiply-adds take.
//
// Launch: grid (ceil(N / BLOCK), ceil(M / BLOCK)), block
// (BLOCK, BLOCK). BLOCK is a define.

extern "C" __global__ void naive(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  int row = blockIdx.y * BLOCK + threadIdx.y;
  int col = blockIdx.x * BLOCK + threadIdx.x;
  if (row >= M || col >= N) return;

  float sum = 0.0f;
  for (int k = 0; k < K; ++k)
    sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];

  size_t i = (size_t)row * N + col;
  C[i] = alpha * sum + (beta != 0 ? beta * C0[i] : 0.0f);
}
