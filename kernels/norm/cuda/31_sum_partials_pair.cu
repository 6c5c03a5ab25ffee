// Adds up the partial sums of both gradients in one launch.
//
// Idea: as in 17, a block owns 32 columns, and its order of additions
// is always the same. Here it has 32 warps instead of 8, so that a warp
// adds a quarter of the rows, and each warp loads PER rows before it
// adds the first. blockIdx.y chooses the gradient: the blocks of both
// run at the same time.
// What limits it: latency. The partial sums are in L2.
//
// Launch: grid (ceil(N / 32), 2), block (32, WARPS). WARPS is a define.

constexpr int PER = 4;  // rows of a warp that are loaded at once

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    sum_partials_pair(
        const float* __restrict__ partial_gamma,  // [parts, N]
        const float* __restrict__ partial_beta,   // [parts, N]
        float* __restrict__ dgamma,               // [N]
        float* __restrict__ dbeta,                // [N]
        int parts, int N) {
  __shared__ float of_warp[WARPS][32];
  const float* partial = blockIdx.y ? partial_beta : partial_gamma;
  int lane = threadIdx.x, warp = threadIdx.y;
  int col = blockIdx.x * 32 + lane;

  float sum = 0.0f;
  for (int part = warp; part < parts; part += PER * WARPS) {
    float rows[PER];
    for (int k = 0; k < PER; ++k) {
      int row = part + k * WARPS;
      bool inside = row < parts && col < N;
      rows[k] = inside ? partial[(size_t)row * N + col] : 0.0f;
    }
    for (int k = 0; k < PER; ++k) sum += rows[k];
  }
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp || col >= N) return;
  for (int other = 1; other < WARPS; ++other)
    sum += of_warp[other][lane];
  (blockIdx.y ? dbeta : dgamma)[col] = sum;
}
