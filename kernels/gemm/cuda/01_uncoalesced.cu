// One thread per element of C, with the rows of C along the warp.
//
// Idea: each thread multiplies one row of A by one column of B. The
// lanes of a warp own neighbouring rows of C. Two neighbouring rows
// of A are K floats apart in memory. For each k the 32 lanes
// therefore load from 32 sectors of 32 bytes. They use 4 bytes of
// each sector.
// What limits it: memory requests. A warp loads 32 sectors, but the
// 32 floats would fit into 4.
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

  size_t c_index = (size_t)row * N + col;
  C[c_index] = alpha * sum + (beta != 0 ? beta * C0[c_index] : 0.0f);
}
