// A copy that starts `offset` floats into its input.
//
// Idea: neighbouring lanes still read neighbouring floats. But
// the 128 bytes of a warp no longer begin at the start of a
// sector of 32 bytes. They are in 5 sectors instead of 4, unless
// offset is a multiple of 8.
// What limits it: HBM. The fifth sector is also the first of the
// next warp, so the caches hide most of the cost.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void misaligned_copy(
    const float* __restrict__ input,  // [offset + n]
    float* __restrict__ output,       // [n]
    int n, int offset) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= n) return;
  output[element] = input[offset + element];
}
