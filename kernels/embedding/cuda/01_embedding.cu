// Embedding: row tokens[m] of a table, one thread per element.
//
// Idea: the definition. A thread finds its row m, reads the token and
// copies one float of that row of the table.
// What limits it: each thread loads 4 bytes. The division that finds
// the row takes longer than the copy. Neighbours read the same token
// again.
//
// Launch: grid ceil(M * d / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) embedding(
    const int* __restrict__ tokens,   // [M], each in 0 .. V - 1
    const float* __restrict__ table,  // [V, d]
    float* __restrict__ y,            // [M, d]
    int M, int d) {
  size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= (size_t)M * d) return;
  size_t m = i / d, column = i % d;
  y[i] = table[(size_t)tokens[m] * d + column];
}
