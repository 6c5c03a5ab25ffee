// The gradient of an embedding by atomic additions.
//
// Idea: a row of y is a copy of a row of the table. So the gradient of
// that row is the sum of dy over all m with this token. Each thread
// adds one element of dy to the table's gradient, which is 0 before.
// The addition is atomic: other threads may add to the same element.
// What limits it: repeated tokens. Additions to one element run one
// after the other. Their order differs from run to run, and with it
// the rounding.
//
// Launch: grid ceil(M * d / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) scatter_add(
    const int* __restrict__ tokens,  // [M], each in 0 .. V - 1
    const float* __restrict__ dy,    // [M, d]
    float* __restrict__ dtable,      // [V, d], 0 before
    int M, int d) {
  size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= (size_t)M * d) return;
  size_t m = i / d, column = i % d;
  atomicAdd(&dtable[(size_t)tokens[m] * d + column], dy[i]);
}
