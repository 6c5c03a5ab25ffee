// The gradients of layer norm: a block a row, with atomic additions.
//
// Idea: dx stays within a row: with xhat = (x - mean) * invstd and
// g = dy * gamma, dx = invstd * (g - mean of g - xhat * mean of
// g * xhat). But dgamma and dbeta are sums over all rows. Each block
// adds its terms to them in memory by atomic additions.
// What limits it: M * N atomic additions for each sum, M of them to the
// same address. Their order changes, and so do the last bits. dy and x
// are read twice.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.
// dgamma and dbeta are 0 before.

extern "C" __global__ void __launch_bounds__(BLOCK) ln_backward_atomics(
    const float* __restrict__ dy,      // [M, N]
    const float* __restrict__ x,       // [M, N]
    const float* __restrict__ gamma,   // [N]
    const float* __restrict__ mean,    // [M], from the forward pass
    const float* __restrict__ invstd,  // [M], from the forward pass
    float* __restrict__ dx,            // [M, N]
    float* __restrict__ dgamma,        // [N]
    float* __restrict__ dbeta,         // [N]
    int N) {
  __shared__ float partial_g[BLOCK], partial_gx[BLOCK];
  int thread = threadIdx.x, row = blockIdx.x;
  dy += (size_t)row * N, x += (size_t)row * N, dx += (size_t)row * N;
  float m = mean[row], s = invstd[row];

  float sum_g = 0.0f, sum_gx = 0.0f;
  for (int col = thread; col < N; col += BLOCK) {
    float g = dy[col] * gamma[col], xhat = (x[col] - m) * s;
    sum_g += g, sum_gx += g * xhat;
  }
  partial_g[thread] = sum_g, partial_gx[thread] = sum_gx;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) {
      partial_g[thread] += partial_g[thread + stride];
      partial_gx[thread] += partial_gx[thread + stride];
    }
  }
  __syncthreads();
  float mean_g = partial_g[0] / N, mean_gx = partial_gx[0] / N;

  for (int col = thread; col < N; col += BLOCK) {
    float g = dy[col] * gamma[col], xhat = (x[col] - m) * s;
    dx[col] = s * (g - mean_g - xhat * mean_gx);
    atomicAdd(&dgamma[col], dy[col] * xhat);
    atomicAdd(&dbeta[col], dy[col]);
  }
}
