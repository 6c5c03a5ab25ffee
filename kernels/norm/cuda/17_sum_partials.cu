// Adds up the partial sums of the blocks of a launch before it.
//
// Idea: a block owns 32 columns. Its 8 warps add every 8th row of them.
// Lanes read contiguous floats. Then the warps' sums are added in
// shared memory. The order is always the same, so the result has the
// same bits in each run. Atomic additions do not promise that.
// What limits it: latency. The partial sums are in L2.
//
// Launch: grid ceil(N / 32), block (32, 8).

extern "C" __global__ void __launch_bounds__(256) sum_partials(
    const float* __restrict__ partial,  // [parts, N]
    float* __restrict__ sums,           // [N]
    int parts, int N) {
  __shared__ float of_warp[8][32];
  int lane = threadIdx.x, warp = threadIdx.y;
  int col = blockIdx.x * 32 + lane;

  float sum = 0.0f;
  for (int part = warp; part < parts; part += 8)
    if (col < N) sum += partial[(size_t)part * N + col];
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp || col >= N) return;
  for (int other = 1; other < 8; ++other) sum += of_warp[other][lane];
  sums[col] = sum;
}
