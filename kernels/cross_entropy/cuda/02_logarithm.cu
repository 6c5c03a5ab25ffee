// Cross-entropy in three launches, the second: the logarithm.
//
// Idea: each thread takes the logarithm of one probability.
// What limits it: memory. It reads a matrix and writes another one.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) logarithm(
    const float* __restrict__ p,  // [count]
    float* __restrict__ log_p,    // [count]
    long long count) {
  long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < count) log_p[i] = logf(p[i]);
}
