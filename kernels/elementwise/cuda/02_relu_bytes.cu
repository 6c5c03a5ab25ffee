// ReLU that also keeps a mask: one byte per element.
//
// Idea: one thread per element. mask is 1 where x is positive. Then the
// backward pass does not need y, which may be freed or overwritten.
// What limits it: HBM. The mask adds 1 byte to the 8 of an element.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) relu_bytes(
    const float* __restrict__ x,       // [count]
    float* __restrict__ y,             // [count]
    unsigned char* __restrict__ mask,  // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  y[i] = x[i] < 0.0f ? 0.0f : x[i];
  mask[i] = x[i] > 0.0f;
}
