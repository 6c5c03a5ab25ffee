// Shared by the kernels from 05 on: how many blocks fit on an SM, and
// access to a row of a matrix four floats at a time. Elements outside
// the matrix are loaded as zero and not stored. A 16-byte access
// needs an address that is a multiple of 16. cudaMalloc aligns the
// matrix. Its rows are aligned too if the number of columns is a
// multiple of 4. All other rows are accessed float by float.

// Blocks that must fit on an SM together: as many as leave each
// thread 128 registers, or 255 if it has more than 64 sums.
__device__ constexpr int resident(int threads, int sums) {
  int capacity = sums > 64 ? 256 : 512;  // threads
  return threads < capacity ? capacity / threads : 1;
}

// Returns X[row][col .. col + 3] of X [rows, cols], zero outside X.
// col is a multiple of 4.
__device__ inline float4 load4(const float* X, int rows, int cols,
                               int row, int col) {
  float4 values = {};
  if (row >= rows || col >= cols) return values;
  X += (size_t)row * cols + col;
  if (cols % 4 == 0) return *(const float4*)X;
  values.x = X[0];
  if (col + 1 < cols) values.y = X[1];
  if (col + 2 < cols) values.z = X[2];
  if (col + 3 < cols) values.w = X[3];
  return values;
}

// Stores C[row][col .. col + 3] = alpha * sum + beta * C0, only
// elements inside C. C and C0 are [rows, cols]. C0 is read only if
// beta is not 0.
__device__ inline void store4(float* C, const float* C0, int rows,
                              int cols, int row, int col,
                              const float* sum, float alpha,
                              float beta) {
  if (row >= rows || col >= cols) return;
  size_t c_index = (size_t)row * cols + col;
  float4 values = {};
  if (beta != 0) values = load4(C0, rows, cols, row, col);
  values.x = alpha * sum[0] + beta * values.x;
  values.y = alpha * sum[1] + beta * values.y;
  values.z = alpha * sum[2] + beta * values.z;
  values.w = alpha * sum[3] + beta * values.w;
  if (cols % 4 == 0) {
    *(float4*)(C + c_index) = values;
    return;
  }
  C[c_index] = values.x;
  if (col + 1 < cols) C[c_index + 1] = values.y;
  if (col + 2 < cols) C[c_index + 2] = values.z;
  if (col + 3 < cols) C[c_index + 3] = values.w;
}
