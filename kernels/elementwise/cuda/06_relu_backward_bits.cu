// The gradient of ReLU from a mask of bits.
//
// Idea: one thread per element. All lanes of a warp read the same word:
// one request of 4 bytes. Each lane tests its own bit of it.
// What limits it: HBM. 8 1/8 bytes are moved per element.
//
// Launch: grid ceil(count / BLOCK), block BLOCK, whole warps.

extern "C" __global__ void __launch_bounds__(BLOCK) relu_backward_bits(
    const float* __restrict__ dy,       // [count]
    const unsigned* __restrict__ mask,  // [ceil(count / 32)]
    float* __restrict__ dx,             // [count]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned word = mask[i / 32];
  float gradient = dy[i];
  dx[i] = word >> i % 32 & 1 ? gradient : 0.0f;
}
