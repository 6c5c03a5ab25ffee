// Atomics in global memory: with the old value, and without.
//
// Idea: `share` neighbouring threads update one word. Each group
// updates `stride` words after the group before. The L2 cache
// executes the update. If the old value is not used, the
// compiler selects an instruction that returns none: RED instead
// of ATOM. The warp then does not wait for it.
// What limits it: the number of sectors with words of a warp.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.
// OP: 0 add, 1 max, 2 exchange, 3 compare and swap. REAL: the
// words are 0 int, 1 float (which has only 0 and 2). OLD: 1 if
// the old values are used.

#if REAL
typedef float Word;
#else
typedef int Word;
#endif

__device__ inline Word update(Word* word, Word value) {
#if OP == 0
  return atomicAdd(word, value);
#elif OP == 1
  return atomicMax(word, value);
#elif OP == 2
  return atomicExch(word, value);
#else
  return atomicCAS(word, 0, value);
#endif
}

extern "C" __global__ void global_atomics(
    const Word* __restrict__ input,  // [n]
    Word* __restrict__ words,        // [ceil(n / share) * stride]
    int* __restrict__ was_zero,      // [n], about the old value
    int n, int share, int stride) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= n) return;
  Word old =
      update(&words[element / share * stride], input[element]);
#if OLD
  was_zero[element] = old == 0;
#endif
}
