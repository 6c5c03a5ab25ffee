// The gradient of y = max(a + b, 0): the same number for both inputs.
//
// Idea: one thread per element. Where y is positive, dy is the gradient
// of a and of b; elsewhere both get 0. da is written. db holds the
// gradient of another use of b, and dy is added to it.
// What limits it: HBM. 20 bytes are moved per element.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) residual_backward(
    const float* __restrict__ dy,  // [count]
    const float* __restrict__ y,   // [count]
    float* __restrict__ da,        // [count], of the branch
    float* __restrict__ db,        // [count], of the shortcut: +=
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  float gradient = dy[i];
  gradient = y[i] > 0.0f ? gradient : 0.0f;
  da[i] = gradient;
  db[i] += gradient;
}
