// What the kernels from 05 on share: how many blocks an SM takes, and
// rows of a matrix four floats at a time, with what sticks out of the
// matrix taken care of. A row begins on 16 bytes, which a 16-byte
// access needs, where the matrix does (cudaMalloc sees to it) and its
// columns are a multiple of 4; all other rows go float by float.

// Blocks that must fit an SM together: as many as leave each thread
// 128 registers, or 255 if its sums alone take more than 64.
__device__ constexpr int resident(int threads, int sums) {
  int room = sums > 64 ? 256 : 512;
  return threads < room ? room / threads : 1;
}

// X[row][col .. col + 3] of X [rows, cols], zero outside of it; col
// is a multiple of 4.
__device__ inline float4 load4(const float* X, int rows, int cols,
                               int row, int col) {
  float4 x = {};
  if (row >= rows || col >= cols) return x;
  X += (size_t)row * cols + col;
  if (cols % 4 == 0) return *(const float4*)X;
  x.x = X[0];
  if (col + 1 < cols) x.y = X[1];
  if (col + 2 < cols) x.z = X[2];
  if (col + 3 < cols) x.w = X[3];
  return x;
}

// C[row][col .. col + 3] = alpha * sum + beta * C0, where it lies in
// C and C0 [rows, cols]; C0 is read only if beta is not 0.
__device__ inline void store4(float* C, const float* C0, int rows,
                              int cols, int row, int col,
                              const float* sum, float alpha,
                              float beta) {
  if (row >= rows || col >= cols) return;
  size_t at = (size_t)row * cols + col;
  float4 c = {};
  if (beta != 0) c = load4(C0, rows, cols, row, col);
  c.x = alpha * sum[0] + beta * c.x;
  c.y = alpha * sum[1] + beta * c.y;
  c.z = alpha * sum[2] + beta * c.z;
  c.w = alpha * sum[3] + beta * c.w;
  if (cols % 4 == 0) {
    *(float4*)(C + at) = c;
    return;
  }
  C[at] = c.x;
  if (col + 1 < cols) C[at + 1] = c.y;
  if (col + 2 < cols) C[at + 2] = c.z;
  if (col + 3 < cols) C[at + 3] = c.w;
}
