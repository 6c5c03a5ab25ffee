// Cross-entropy in three launches, the third: one number of each row.
//
// Idea: each thread reads the label of its row and negates the
// logarithm at that column.
// What limits it: the launch. The work is one number per row.
//
// Launch: grid ceil(M / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) pick(
    const float* __restrict__ log_p,  // [M, N]
    const int* __restrict__ labels,   // [M], each in 0 .. N - 1
    float* __restrict__ loss,         // [M]
    int M, int N) {
  int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row < M) loss[row] = -log_p[(size_t)row * N + labels[row]];
}
