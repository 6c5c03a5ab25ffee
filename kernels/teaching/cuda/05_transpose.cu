// Transpose through shared memory.
//
// Idea: a warp reads along a row of the input and writes along a
// row of the output. Both global accesses are coalesced. The
// tile is transposed in shared memory, where a warp reads a
// column. With PITCH 32 all 32 floats of a column are in one
// bank and are read one after the other. With PITCH 33 each row
// is shifted by one bank, so they are in 32 different banks.
// What limits it: HBM with PITCH 33, the bank conflicts with 32.
//
// Launch: grid (ceil(cols / 32), ceil(rows / 32)), block (32,
// 32). PITCH is a define.

extern "C" __global__ void transpose(
    const float* __restrict__ input,  // [rows, cols]
    float* __restrict__ output,       // [cols, rows]
    int rows, int cols) {
  __shared__ float tile[32][PITCH];
  int thread_col = threadIdx.x, thread_row = threadIdx.y;
  int row = blockIdx.y * 32 + thread_row;  // of the input
  int col = blockIdx.x * 32 + thread_col;
  if (row < rows && col < cols)
    tile[thread_row][thread_col] =
        input[(size_t)row * cols + col];
  __syncthreads();
  row = blockIdx.x * 32 + thread_row;  // of the output
  col = blockIdx.y * 32 + thread_col;
  if (row < cols && col < rows)
    output[(size_t)row * rows + col] =
        tile[thread_col][thread_row];
}
