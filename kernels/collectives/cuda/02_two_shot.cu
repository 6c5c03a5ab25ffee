// All-reduce in two shots: each GPU adds up one chunk for all.
//
// Idea: rank r reads chunk r of all arrays, adds it in the order of the
// ranks, and writes the sum into the results of all ranks. Each port
// moves 2 (RANKS - 1) / RANKS arrays each way, as little as a ring. There
// are only two exchanges of flags, for any number of ranks.
// What limits it: the links, for a large array. For a small one, the
// flags, and that every GPU waits for a write and not only for a read.
//
// Launch on every GPU: grid any, at most MAX_BLOCKS; block 32 to 1024.

#include "peers.cuh"
#include "add_for_all.cuh"

extern "C" __global__ void __launch_bounds__(512) two_shot(
    Peers in,         // of each rank: [n], read by all
    Peers out,        // of each rank: [n], written by all
    Flags flags,      // of each rank: [blocks][FLAGS]
    unsigned* own,    // [blocks][FLAGS], this rank's flags
    unsigned* error,  // [1], not 0 after a rank did not come
    int rank, int n, long long patience) {
  unsigned run = next_run(own, error);
  if (!meet(flags, own, rank, READY, run, patience, error)) return;

  int first = chunk_begin(rank, n) + blockIdx.x * blockDim.x + threadIdx.x;
  add_for_all(in, out, first, chunk_begin(rank + 1, n));

  // The sums of the other ranks are here once all have signalled.
  meet(flags, own, rank, DONE, run, patience, error);
}
