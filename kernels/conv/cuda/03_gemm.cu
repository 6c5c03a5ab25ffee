// The product after im2col: C[n] = A x B[n], tiled through shared
// memory.
//
// Idea: a block computes a TILE x TILE tile of C. At each step it
// loads one tile of A and one tile of B into shared memory. Each
// float loaded from HBM is used TILE times.
// What limits it: two loads from shared memory for each multiply-add.
//
// Launch: grid (ceil(cols / TILE), ceil(rows / TILE), batch),
// block (TILE, TILE). TILE is a define.

extern "C" __global__ void gemm(
    const float* __restrict__ A,  // [rows, inner], for all n
    const float* __restrict__ B,  // [batch, inner, cols]
    float* __restrict__ C,        // [batch, rows, cols]
    int rows, int cols, int inner) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];
  int thread_col = threadIdx.x, thread_row = threadIdx.y;
  int row = blockIdx.y * TILE + thread_row;  // of C
  int col = blockIdx.x * TILE + thread_col;
  A += (size_t)row * inner;
  B += (size_t)blockIdx.z * inner * cols + col;
  C += ((size_t)blockIdx.z * rows + row) * cols + col;

  float sum = 0.0f;
  for (int k_tile = 0; k_tile < inner; k_tile += TILE) {
    bool a_inside = row < rows && k_tile + thread_col < inner;
    bool b_inside = col < cols && k_tile + thread_row < inner;
    tile_a[thread_row][thread_col] =
        a_inside ? A[k_tile + thread_col] : 0.0f;
    tile_b[thread_row][thread_col] =
        b_inside ? B[(size_t)(k_tile + thread_row) * cols] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k)
      sum += tile_a[thread_row][k] * tile_b[k][thread_col];
    __syncthreads();
  }
  if (row < rows && col < cols) *C = sum;
}
