// All-reduce through one GPU: rank 0 adds for all.
//
// Idea: rank 0 reads the arrays of all GPUs, adds them in the order of
// the ranks, and writes the sum into the result of every GPU. The other
// GPUs only say when their array is ready, and wait.
// What limits it: the port of rank 0. It receives and sends RANKS - 1
// whole arrays; the ports of the other GPUs are idle most of the time.
//
// Launch on every GPU: grid any, at most MAX_BLOCKS; block 32 to 1024.

#include "peers.cuh"
#include "add_for_all.cuh"

extern "C" __global__ void __launch_bounds__(512) through_one(
    Peers in,         // of each rank: [n], read by rank 0
    Peers out,        // of each rank: [n], written by rank 0
    Flags flags,      // of each rank: [blocks][FLAGS]
    unsigned* own,    // [blocks][FLAGS], this rank's flags
    unsigned* error,  // [1], not 0 after a rank did not come
    int rank, int n, long long patience) {
  unsigned run = next_run(own, error);
  if (!meet(flags, own, rank, READY, run, patience, error)) return;

  int first = blockIdx.x * blockDim.x + threadIdx.x;
  if (rank == 0) add_for_all(in, out, first, n);

  meet(flags, own, rank, DONE, run, patience, error);
}
