// One thread per element of C, its warp laid the wrong way.
//
// Idea: each thread multiplies one row of A by one column of B. The
// lanes of a warp own neighbouring rows of C, and rows lie K or N
// floats apart: for each k a warp reads 32 places of A, in 32
// sectors of 32 bytes, and uses 4 bytes of each.
// What limits it: memory requests, 32 sectors where 4 would do.
//
// Launch: grid (ceil(M / BLOCK), ceil(N / BLOCK)), block
// (BLOCK, BLOCK). BLOCK is a define.

extern "C" __global__ void uncoalesced(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  int row = blockIdx.x * BLOCK + threadIdx.x;
  int col = blockIdx.y * BLOCK + threadIdx.y;
  if (row >= M || col >= N) return;

  float sum = 0.0f;
  for (int k = 0; k < K; ++k)
    sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];

  size_t i = (size_t)row * N + col;
  C[i] = alpha * sum + (beta != 0 ? beta * C0[i] : 0.0f);
}
