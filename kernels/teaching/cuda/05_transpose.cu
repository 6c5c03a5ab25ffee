// Transpose through shared memory.
//
// Idea: a warp reads along a row of x and writes along a row of
// y, so both global accesses are whole; the turn happens in
// shared memory. There a warp reads a column: with PITCH 32 all
// of its 32 floats lie in one bank and come one after the other.
// PITCH 33 shifts each row by one bank and the column lies in 32
// different ones. What limits it: HBM at PITCH 33, the bank
// conflicts at 32.
//
// Launch: grid (ceil(cols / 32), ceil(rows / 32)), block (32,
// 32). PITCH is a define.

extern "C" __global__ void transpose(
    const float* __restrict__ x,  // [rows, cols]
    float* __restrict__ y,        // [cols, rows]
    int rows, int cols) {
  __shared__ float square[32][PITCH];
  int i = threadIdx.x, j = threadIdx.y;
  int row = blockIdx.y * 32 + j;  // of x
  int col = blockIdx.x * 32 + i;
  if (row < rows && col < cols)
    square[j][i] = x[(size_t)row * cols + col];
  __syncthreads();
  row = blockIdx.x * 32 + j;  // of y
  col = blockIdx.y * 32 + i;
  if (row < cols && col < rows)
    y[(size_t)row * rows + col] = square[i][j];
}
