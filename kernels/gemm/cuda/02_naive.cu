// One thread per element of C, with the columns of C along the warp.
//
// Idea: each thread multiplies one row of A by one column of B. The
// lanes of a warp own neighbouring columns of C. For each k they load
// 32 neighbouring floats of B, which are 4 sectors. All lanes load
// the same float of A. Only x and y are exchanged, compared with 01.
// What limits it: two loads for every multiply-add. Most of them hit
// a cache. But each load occupies the load unit for the time of four
// multiply-adds.
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

  size_t c_index = (size_t)row * N + col;
  C[c_index] = alpha * sum + (beta != 0 ? beta * C0[c_index] : 0.0f);
}
