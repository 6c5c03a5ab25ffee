// The sum of two tensors, the first half of a residual connection.
//
// Idea: one thread per element. The sum goes to memory, where the next
// kernel reads it again.
// What limits it: HBM. 12 bytes are moved for one addition.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) add(
    const float* __restrict__ a,  // [count]
    const float* __restrict__ b,  // [count]
    float* __restrict__ sum,      // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  sum[i] = a[i] + b[i];
}
