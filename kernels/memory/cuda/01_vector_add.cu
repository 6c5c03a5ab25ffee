// Vector add: one thread an element.
//
// Idea: block blockIdx.x holds the elements from blockIdx.x *
// BLOCK on; thread threadIdx.x of it adds one. 32 threads of
// neighbouring number are a warp and run together, so a warp
// asks for 32 neighbouring floats: 128 bytes, 4 sectors of 32
// bytes, none of them wasted. The last block may have more
// threads than elements are left: those do nothing.
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
