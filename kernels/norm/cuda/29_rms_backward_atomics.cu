// The gradients of RMS norm: a block a row, with atomic additions.
//
// Idea: with xhat = x * invrms and g = dy * gamma,
// dx = invrms * (g - xhat * mean of g * xhat). No mean was taken off,
// so one sum is enough. dgamma is a sum over all rows: each block adds
// its terms to it in memory by atomic additions.
// What limits it: M * N atomic additions, M of them to the same
// address. dy and x are read twice.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.
// dgamma is 0 before.

extern "C" __global__ void __launch_bounds__(BLOCK) rms_backward_atomics(
    const float* __restrict__ dy,      // [M, N]
    const float* __restrict__ x,       // [M, N]
    const float* __restrict__ gamma,   // [N]
    const float* __restrict__ invrms,  // [M], from the forward pass
    float* __restrict__ dx,            // [M, N]
    float* __restrict__ dgamma,        // [N]
    int N) {
  __shared__ float partial_gx[BLOCK];
  int thread = threadIdx.x, row = blockIdx.x;
  dy += (size_t)row * N, x += (size_t)row * N, dx += (size_t)row * N;
  float s = invrms[row];

  float sum_gx = 0.0f;
  for (int col = thread; col < N; col += BLOCK)
    sum_gx += dy[col] * gamma[col] * (x[col] * s);
  partial_gx[thread] = sum_gx;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride)
      partial_gx[thread] += partial_gx[thread + stride];
  }
  __syncthreads();
  float mean_gx = partial_gx[0] / N;

  for (int col = thread; col < N; col += BLOCK) {
    float g = dy[col] * gamma[col], xhat = x[col] * s;
    dx[col] = s * (g - xhat * mean_gx);
    atomicAdd(&dgamma[col], dy[col] * xhat);
  }
}
