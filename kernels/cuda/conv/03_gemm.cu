// The product after im2col: C[n] = A x B[n], tiled through shared memory.
//
// Idea: a block owns a TILE x TILE square of C. It slides along the inner dimension, bringing one
// square of A and one of B into shared memory at a time; each value fetched from HBM is then used
// TILE times. What limits it: two shared-memory loads for every multiply-add.
//
// Launch: grid (ceil(cols / TILE), ceil(rows / TILE), batch), block (TILE, TILE). TILE is a define.

extern "C" __global__ void gemm(const float* __restrict__ A,  // [rows, inner], the same for all n
                                const float* __restrict__ B,  // [batch, inner, cols]
                                float* __restrict__ C,        // [batch, rows, cols]
                                int rows, int cols, int inner) {
  __shared__ float As[TILE][TILE];
  __shared__ float Bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y;
  int col = blockIdx.x * TILE + threadIdx.x;
  const float* Bn = B + (size_t)blockIdx.z * inner * cols;

  float sum = 0.0f;
  for (int k0 = 0; k0 < inner; k0 += TILE) {
    int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
    As[threadIdx.y][threadIdx.x] = row < rows && ka < inner ? A[(size_t)row * inner + ka] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = kb < inner && col < cols ? Bn[(size_t)kb * cols + col] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && col < cols)
    C[((size_t)blockIdx.z * rows + row) * cols + col] = sum;
}
