// y = b in each row, before a library adds a product to it.
//
// Idea: cuBLAS computes y = x W^T + y. So y holds b first.
// What limits it: the bandwidth of the memory that it writes.
//
// Launch: grid ceil(M * N / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) bias_rows(
    const float* __restrict__ b,  // [N]
    float* __restrict__ y,        // [M, N]
    int M, int N) {
  size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < (size_t)M * N) y[i] = b[i % N];
}
