// The end of a residual block: y = max(a + b, 0) in one launch.
//
// Idea: one thread per element. The sum stays in a register until ReLU
// is applied to it. So it is neither written nor read again.
// What limits it: HBM. 12 bytes are moved per element, not 20.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) residual(
    const float* __restrict__ a,  // [count], of the branch
    const float* __restrict__ b,  // [count], of the shortcut
    float* __restrict__ y,        // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  float sum = a[i] + b[i];
  y[i] = sum < 0.0f ? 0.0f : sum;
}
