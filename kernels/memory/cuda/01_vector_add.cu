// Vector add: one thread per element.
//
// Idea: block blockIdx.x computes BLOCK neighbouring elements, each
// thread one of them. 32 threads with neighbouring numbers form a
// warp and run together. A warp therefore loads 32 neighbouring
// floats. These 128 bytes are 4 sectors of 32 bytes, and no byte
// is wasted. The last block may have more threads than there are
// elements left; its other threads do nothing.
// What limits it: HBM. 12 bytes are moved for one addition.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void vector_add(
    const float* __restrict__ A,  // [n]
    const float* __restrict__ B,  // [n]
    float* __restrict__ C,        // [n]
    int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  C[i] = A[i] + B[i];
}
