// Sorting tokens, fifth launch: each index m goes to its position.
//
// Idea: the position is the sum of three numbers: where the token
// begins, how many of it are in earlier chunks, and the rank within
// the chunk. Equal tokens keep their order, so the result is the same
// in every run.
// What limits it: three dependent loads per token.
//
// Launch: grid ceil(M / CHUNK), block CHUNK. CHUNK is a define.

extern "C" __global__ void __launch_bounds__(CHUNK) place(
    const int* __restrict__ tokens,   // [M], each in 0 .. V - 1
    const int* __restrict__ ranks,    // [M]
    const int* __restrict__ earlier,  // [chunks, V], in chunks before
    const int* __restrict__ first,    // [V]
    int* __restrict__ order,          // [M]
    int M, int V) {
  int m = blockIdx.x * CHUNK + threadIdx.x;
  if (m >= M) return;
  int token = tokens[m];
  int before = earlier[(size_t)blockIdx.x * V + token] + ranks[m];
  order[first[token] + before] = m;
}
