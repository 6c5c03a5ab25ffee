// All-reduce in one shot: every GPU reads the arrays of all GPUs.
//
// Idea: each GPU adds up all arrays itself, element by element, in the
// order of the ranks. All GPUs add in the same order, so their sums are
// equal bit for bit. There is one exchange of flags before the reads and
// one after them.
// What limits it: each GPU receives RANKS - 1 whole arrays. A ring
// receives less than two. For a small array only the flags count, and a
// ring has 2 (RANKS - 1) times as many in a row.
//
// Launch on every GPU: grid any, at most MAX_BLOCKS; block 32 to 1024.

#include "peers.cuh"

extern "C" __global__ void __launch_bounds__(512) one_shot(
    Peers in,         // of each rank: [n], read by all
    Vec* out,         // [n], this rank's
    Flags flags,      // of each rank: [blocks][FLAGS]
    unsigned* own,    // [blocks][FLAGS], this rank's flags
    unsigned* error,  // [1], not 0 after a rank did not come
    int rank, int n, long long patience) {
  unsigned run = next_run(own, error);
  if (!meet(flags, own, rank, READY, run, patience, error)) return;

  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
       i += gridDim.x * blockDim.x) {
    Vec terms[RANKS];
#pragma unroll
    for (int peer = 0; peer < RANKS; ++peer) terms[peer] = in.of[peer][i];
    Vec sum = terms[0];
#pragma unroll
    for (int peer = 1; peer < RANKS; ++peer) sum = sum + terms[peer];
    out[i] = sum;
  }

  // No rank may overwrite its array while another still reads it.
  meet(flags, own, rank, DONE, run, patience, error);
}
