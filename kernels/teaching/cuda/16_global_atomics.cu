// Atomics in global memory: with the old value, and without.
//
// Idea: `share` neighbouring threads update one word; each group
// updates `stride` words after the group before. The L2 cache
// carries out the update. If nobody reads the old value, the
// compiler takes an instruction that returns none (RED in place
// of ATOM), and the warp need not wait for it. What limits it:
// the sectors that a warp's words lie in.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.
// OP: 0 add, 1 max, 2 exchange, 3 compare and swap. REAL: the
// words are 0 int, 1 float (which has only 0 and 2). OLD: whether
// the old values are kept.

#if REAL
typedef float Word;
#else
typedef int Word;
#endif

__device__ inline Word update(Word* word, Word v) {
#if OP == 0
  return atomicAdd(word, v);
#elif OP == 1
  return atomicMax(word, v);
#elif OP == 2
  return atomicExch(word, v);
#else
  return atomicCAS(word, 0, v);
#endif
}

extern "C" __global__ void global_atomics(
    const Word* __restrict__ x,  // [n]
    Word* __restrict__ y,        // [ceil(n / share) * stride], 0
    int* __restrict__ old,       // [n], whether one was 0
    int n, int share, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Word before = update(&y[i / share * stride], x[i]);
#if OLD
  old[i] = before == 0;
#endif
}
