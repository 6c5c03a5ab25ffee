// Atomics in shared memory: lanes of a warp that meet at a word.
//
// Idea: `share` neighbouring threads update one word; each group
// updates `stride` words after the group before. The hardware
// updates an int in one instruction. It has none for a float's
// sum, so the compiler writes a loop: load the word, add, swap if
// the word is unchanged. Of the lanes that meet at a word one
// succeeds each time, and the others load again. What limits it:
// the lanes at the fullest word.
//
// Launch: grid (blocks), block a multiple of `share`.
// OP: 0 add, 1 max, 2 exchange, 3 compare and swap. REAL: the
// words are 0 int, 1 float, 2 double (which have only 0 and 2).

const int WORDS = 1024;  // of the table

#if REAL == 2
typedef double Word;
#elif REAL == 1
typedef float Word;
#else
typedef int Word;
#endif

__device__ inline void update(Word* word, Word v) {
#if OP == 0
  atomicAdd(word, v);
#elif OP == 1
  atomicMax(word, v);
#elif OP == 2
  atomicExch(word, v);
#else
  atomicCAS(word, 0, v);
#endif
}

extern "C" __global__ void shared_atomics(
    const Word* __restrict__ x,  // [grid * block]
    Word* __restrict__ y,        // [grid, 1024]
    int n, int share, int stride) {
  __shared__ Word table[WORDS];
#pragma unroll 1
  for (int w = threadIdx.x; w < WORDS; w += blockDim.x)
    table[w] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int word = threadIdx.x / share * stride % WORDS;
  if (i < n) update(&table[word], x[i]);
  __syncthreads();
#pragma unroll 1
  for (int w = threadIdx.x; w < WORDS; w += blockDim.x)
    y[blockIdx.x * WORDS + w] = table[w];
}
