// Sorting tokens, second launch: rank and count within a chunk.
//
// Idea: a block has CHUNK tokens in shared memory. Each thread compares
// its token with all of them. The equal ones before it are its rank.
// If none comes after it, it stores the count of the token in this
// chunk. No two threads store the same count, so nothing is atomic.
// What limits it: CHUNK comparisons per token.
//
// Launch: grid ceil(M / CHUNK), block CHUNK. CHUNK is a define.

extern "C" __global__ void __launch_bounds__(CHUNK) rank_tokens(
    const int* __restrict__ tokens,  // [M], each in 0 .. V - 1
    int* __restrict__ ranks,         // [M]
    int* __restrict__ counts,        // [chunks, V], 0 before
    int M, int V) {
  __shared__ int chunk[CHUNK];
  int thread = threadIdx.x, m = blockIdx.x * CHUNK + thread;
  int token = m < M ? tokens[m] : -1;  // -1: no token
  chunk[thread] = token;
  __syncthreads();
  if (m >= M) return;

  int rank = 0, after = 0;
  for (int i = 0; i < CHUNK; ++i) {
    if (chunk[i] != token) continue;
    rank += i < thread;
    after += i > thread;
  }
  ranks[m] = rank;
  if (after == 0) counts[(size_t)blockIdx.x * V + token] = rank + 1;
}
