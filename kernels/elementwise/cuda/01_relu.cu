// ReLU: y = max(x, 0). Nothing but y is kept for the backward pass.
//
// Idea: one thread per element. A positive y says that x was positive,
// so the backward pass needs no copy of x. NaN stays NaN: fmaxf would
// hide it.
// What limits it: HBM. 8 bytes are moved for one comparison.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) relu(
    const float* __restrict__ x,  // [count]
    float* __restrict__ y,        // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
