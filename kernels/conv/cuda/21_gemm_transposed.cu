// The product before col2im: C[n] = A transposed x B[n], tiled through
// shared memory.
//
// Idea: with A the filters [K, C*R*S] and B the output gradient
// [K, P*Q], a row of C is one tap and a column is one output pixel: C
// is the gradient of im2col's data matrix. A block computes a TILE x
// TILE tile of C. The tile of A is loaded as it is in memory, its rows
// along k, so that neighbouring threads load neighbouring floats.
// What limits it: two loads from shared memory for each multiply-add.
//
// Launch: grid (ceil(cols / TILE), ceil(rows / TILE), batch),
// block (TILE, TILE). TILE is a define.

extern "C" __global__ void gemm_transposed(
    const float* __restrict__ A,  // [inner, rows], for all n
    const float* __restrict__ B,  // [batch, inner, cols]
    float* __restrict__ C,        // [batch, rows, cols]
    int rows, int cols, int inner) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];
  int thread_col = threadIdx.x, thread_row = threadIdx.y;
  int block_row = blockIdx.y * TILE;
  int row = block_row + thread_row;  // of C
  int col = blockIdx.x * TILE + thread_col;
  A += block_row + thread_col;
  B += (size_t)blockIdx.z * inner * cols + col;
  C += ((size_t)blockIdx.z * rows + row) * cols + col;

  float sum = 0.0f;
  for (int k_tile = 0; k_tile < inner; k_tile += TILE) {
    int k = k_tile + thread_row;
    bool a_inside = block_row + thread_col < rows && k < inner;
    bool b_inside = col < cols && k < inner;
    tile_a[thread_row][thread_col] =
        a_inside ? A[(size_t)k * rows] : 0.0f;
    tile_b[thread_row][thread_col] =
        b_inside ? B[(size_t)k * cols] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k)
      sum += tile_a[k][thread_row] * tile_b[k][thread_col];
    __syncthreads();
  }
  if (row < rows && col < cols) *C = sum;
}
