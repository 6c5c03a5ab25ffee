// Softmax as it is defined: a block per row, exponentials of x itself.
//
// Idea: y = exp(x) / l, l the sum of all exp(x) of the row. Each thread
// adds every BLOCK-th exponential. Then a tree in shared memory adds
// the sums of the threads: in each step half of them, until one is
// left. Small numbers give the right result, with one pass over x less
// than in 02.
// What limits it: the results can be wrong. Above 88.72 exp overflows
// FP32 to infinity, and infinity / infinity is NaN. If all numbers of a
// row are below -104, the sum is 0, and 0 / 0 is NaN too.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) unsafe(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ float partial[BLOCK];  // a sum per thread
  int thread = threadIdx.x;
  x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;  // [N]

  float l = 0.0f;
  for (int col = thread; col < N; col += BLOCK) l += expf(x[col]);
  partial[thread] = l;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) partial[thread] += partial[thread + stride];
  }
  __syncthreads();
  l = partial[0];

  for (int col = thread; col < N; col += BLOCK)
    y[col] = expf(x[col]) / l;
}
