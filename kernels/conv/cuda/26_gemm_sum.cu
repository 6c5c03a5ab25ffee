// The product after im2col, for the gradient of the filters: C is the
// sum over n of A[n] x B[n] transposed, tiled through shared memory.
//
// Idea: with A the output gradient [K, P*Q] and B the data matrix
// [C*R*S, P*Q] of an image, C is the gradient of the filters
// [K, C*R*S]. Both rows are along the sum, so a block loads both tiles
// by rows. It adds up all images itself, so no two blocks add to the
// same element. Each image has its own sum: short sums lose fewer bits.
// What limits it: the number of blocks. C is small and the sum is long:
// a few blocks do all the work. Two loads from shared memory for each
// multiply-add.
//
// Launch: grid (ceil(cols / TILE), ceil(rows / TILE)),
// block (TILE, TILE). TILE is a define.

extern "C" __global__ void gemm_sum(
    const float* __restrict__ A,  // [batch, rows, inner]
    const float* __restrict__ B,  // [batch, cols, inner]
    float* __restrict__ C,        // [rows, cols]
    int rows, int cols, int inner, int batch) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE + 1];  // + 1: no bank conflicts
  int thread_col = threadIdx.x, thread_row = threadIdx.y;
  int row = blockIdx.y * TILE + thread_row;  // of C
  int block_col = blockIdx.x * TILE;
  int col = block_col + thread_col;
  A += (size_t)row * inner;
  B += (size_t)(block_col + thread_row) * inner;

  float sum = 0.0f;
  for (int n = 0; n < batch; ++n) {
    float image_sum = 0.0f;
    for (int k_tile = 0; k_tile < inner; k_tile += TILE) {
      int k = k_tile + thread_col;
      bool a_inside = row < rows && k < inner;
      bool b_inside = block_col + thread_row < cols && k < inner;
      tile_a[thread_row][thread_col] = a_inside ? A[k] : 0.0f;
      tile_b[thread_row][thread_col] = b_inside ? B[k] : 0.0f;
      __syncthreads();
      float tile_sum = 0.0f;
      for (int k = 0; k < TILE; ++k)
        tile_sum += tile_a[thread_row][k] * tile_b[thread_col][k];
      image_sum += tile_sum;
      __syncthreads();
    }
    sum += image_sum;
    A += (size_t)rows * inner;
    B += (size_t)cols * inner;
  }
  if (row < rows && col < cols) C[(size_t)row * cols + col] = sum;
}
