// db: the sum of each column of dy, one thread per column.
//
// Idea: b is added to every row of y. So its gradient is the sum of
// dy over the rows. The lanes of a warp read neighbours of a row.
// What limits it: latency. There are N threads, and each adds M
// numbers one after the other.
//
// Launch: grid ceil(N / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) column_sums(
    const float* __restrict__ dy,  // [M, N]
    float* __restrict__ db,        // [N]
    int M, int N) {
  int n = blockIdx.x * BLOCK + threadIdx.x;
  if (n >= N) return;
  float sum = 0.0f;
  for (int m = 0; m < M; ++m) sum += dy[(size_t)m * N + n];
  db[n] = sum;
}
