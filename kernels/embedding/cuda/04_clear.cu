// Sorting tokens, first launch: all counts become 0.
//
// Idea: most tokens occur in no chunk. Only those that occur are
// counted later.
// What limits it: the bandwidth of the memory that it writes.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) clear(
    int* __restrict__ counts,  // [count]
    long long count) {
  long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < count) counts[i] = 0;
}
