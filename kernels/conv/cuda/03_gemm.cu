// The product after im2col: C[n] = A x B[n], tiled through shared
// memory.
//
// Idea: a block owns a TILE x TILE square of C. It slides along the
// inner dimension, bringing one square of A and one of B into shared
// memory at a time; each value fetched from HBM is then used TILE
// times. What limits it: two shared-memory loads for every
// multiply-add.
//
// Launch: grid (ceil(cols / TILE), ceil(rows / TILE), batch),
// block (TILE, TILE). TILE is a define.

extern "C" __global__ void gemm(
    const float* __restrict__ A,  // [rows, inner], for all n
    const float* __restrict__ B,  // [batch, inner, cols]
    float* __restrict__ C,        // [batch, rows, cols]
    int rows, int cols, int inner) {
  __shared__ float As[TILE][TILE];
  __shared__ float Bs[TILE][TILE];
  int x = threadIdx.x, y = threadIdx.y;
  int row = blockIdx.y * TILE + y;
  int col = blockIdx.x * TILE + x;
  A += (size_t)row * inner;
  B += (size_t)blockIdx.z * inner * cols + col;
  C += ((size_t)blockIdx.z * rows + row) * cols + col;

  float sum = 0.0f;
  for (int k0 = 0; k0 < inner; k0 += TILE) {
    bool a = row < rows && k0 + x < inner;
    bool b = col < cols && k0 + y < inner;
    As[y][x] = a ? A[k0 + x] : 0.0f;
    Bs[y][x] = b ? B[(size_t)(k0 + y) * cols] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  if (row < rows && col < cols) *C = sum;
}
