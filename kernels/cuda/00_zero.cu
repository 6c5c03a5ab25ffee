// Fills an array with zeros.
//
// Idea: atomic additions need a sum to start from. This kernel sets it.
// What limits it: the bandwidth of the memory that it writes.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) zero(
    float* __restrict__ y,  // [count]
    long long count) {
  long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < count) y[i] = 0.0f;
}
