// ReLU that also keeps a mask: one bit per element.
//
// Idea: one thread per element. __ballot_sync gives every lane of a
// warp a word, whose bit l is the answer of lane l. So 32 lanes pack
// their 32 answers in one instruction, and lane 0 stores the word.
// Every lane takes part, also those beyond the end.
// What limits it: HBM. The mask adds 1/8 byte to the 8 of an element.
//
// Launch: grid ceil(count / BLOCK), block BLOCK, whole warps.

extern "C" __global__ void __launch_bounds__(BLOCK) relu_bits(
    const float* __restrict__ x,  // [count]
    float* __restrict__ y,        // [count]
    unsigned* __restrict__ mask,  // [ceil(count / 32)]
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  float value = i < count ? x[i] : 0.0f;
  if (i < count) y[i] = value < 0.0f ? 0.0f : value;
  unsigned word = __ballot_sync(~0u, value > 0.0f);
  if (threadIdx.x % 32 == 0 && i < count) mask[i / 32] = word;
}
