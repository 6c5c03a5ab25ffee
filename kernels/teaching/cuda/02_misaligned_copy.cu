// A copy that starts `offset` floats into its input.
//
// Idea: neighbouring lanes still read neighbouring floats, but
// the warp's 128 bytes no longer begin where a sector of 32 bytes
// begins: they touch 5 sectors instead of 4, unless offset is a
// multiple of 8. What limits it: HBM. The fifth sector is the
// next warp's first, so the caches hide most of the price.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void misaligned_copy(
    const float* __restrict__ x,  // [offset + n]
    float* __restrict__ y,        // [n]
    int n, int offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = x[offset + i];
}
