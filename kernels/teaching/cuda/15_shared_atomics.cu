// Atomics in shared memory: lanes of a warp that update one word.
//
// Idea: `share` neighbouring threads update one word. Each group
// updates `stride` words after the group before. The hardware
// updates an int in one instruction. It has no instruction that
// adds to a float, so the compiler writes a loop: load the word,
// add, swap if the word is unchanged. Of the lanes with the same
// word one succeeds each time, and the others load again.
// What limits it: the word with the most lanes.
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

__device__ inline void update(Word* word, Word value) {
#if OP == 0
  atomicAdd(word, value);
#elif OP == 1
  atomicMax(word, value);
#elif OP == 2
  atomicExch(word, value);
#else
  atomicCAS(word, 0, value);
#endif
}

extern "C" __global__ void shared_atomics(
    const Word* __restrict__ input,  // [grid * block]
    Word* __restrict__ output,       // [grid, 1024]
    int n, int share, int stride) {
  __shared__ Word table[WORDS];
#pragma unroll 1
  for (int word = threadIdx.x; word < WORDS; word += blockDim.x)
    table[word] = 0;
  __syncthreads();
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  int word = threadIdx.x / share * stride % WORDS;
  if (element < n) update(&table[word], input[element]);
  __syncthreads();
#pragma unroll 1
  for (int word = threadIdx.x; word < WORDS; word += blockDim.x)
    output[blockIdx.x * WORDS + word] = table[word];
}
