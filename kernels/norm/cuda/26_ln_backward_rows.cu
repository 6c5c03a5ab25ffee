// The gradient dx of layer norm: a block a row.
//
// Idea: as 25, but dgamma and dbeta are left to a second launch, 27.
// What limits it: dy and x are read twice here, and once more by 27.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) ln_backward_rows(
    const float* __restrict__ dy,      // [M, N]
    const float* __restrict__ x,       // [M, N]
    const float* __restrict__ gamma,   // [N]
    const float* __restrict__ mean,    // [M], from the forward pass
    const float* __restrict__ invstd,  // [M], from the forward pass
    float* __restrict__ dx,            // [M, N]
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
  }
}
