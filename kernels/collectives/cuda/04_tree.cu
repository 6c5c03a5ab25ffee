// All-reduce along a tree: sums travel up, the result travels down.
//
// Idea: rank r has the children r + 1, r + 2, r + 4 ... as long as r is a
// multiple of twice that distance. A rank reads the sums of its children,
// adds its own array, and tells its parent. Rank 0 then has the whole
// sum. It writes the sum into the results of its children, they pass it
// on to theirs. Each block moves its own part, SLICE elements at a time:
// slices travel up while the slices before them travel down.
// What limits it: whole arrays cross each link. Rank 0 receives and sends
// as many as it has children, about log2(RANKS). The depth is small: a
// ring has 2 (RANKS - 1) steps in a row, a tree 2 log2(RANKS).
//
// Launch on every GPU: grid any, at most MAX_BLOCKS; block 32 to 1024.

#include "peers.cuh"

// A rank adds LAG slices more before it passes the first one down.
constexpr int LAG = 2;

__device__ inline int parent(int rank) { return rank & (rank - 1); }

__device__ inline bool is_child(int peer, int rank) {
  return peer > rank && peer < RANKS && parent(peer) == rank;
}

// A rank without children.
__device__ inline bool is_leaf(int rank) {
  return rank % 2 == 1 || rank + 1 >= RANKS;
}

// Elements begin .. end - 1: adds the arrays of the children to this
// rank's, in the order of the ranks. Rank 0 stores the sums on its
// children too.
__device__ inline void add_children(const Peers& in, const Peers& out,
                                    int rank, int begin, int end) {
  int i = begin + threadIdx.x, stride = blockDim.x;
  for (; i < end; i += UNROLL * stride) {
    Vec sum[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (i + u * stride < end) sum[u] = in.of[rank][i + u * stride];
#pragma unroll
    for (int step = 1; step < RANKS; step *= 2) {
      int child = rank + step;
      if (!is_child(child, rank)) break;
      const Vec* part = is_leaf(child) ? in.of[child] : out.of[child];
      Vec term[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        if (i + u * stride < end) term[u] = part[i + u * stride];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        if (i + u * stride < end) sum[u] = sum[u] + term[u];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      int at = i + u * stride;
      if (at >= end) break;
      out.of[rank][at] = sum[u];
      for (int child = 1; rank == 0 && child < RANKS; child *= 2)
        out.of[child][at] = sum[u];
    }
  }
}

// Elements begin .. end - 1 of the result go to the children.
__device__ inline void pass_down(const Peers& out, int rank, int begin,
                                 int end) {
  for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
    Vec total = out.of[rank][i];
    for (int step = 1; is_child(rank + step, rank); step *= 2)
      out.of[rank + step][i] = total;
  }
}

extern "C" __global__ void __launch_bounds__(512) tree(
    Peers in,         // of each rank: [n], read by the parent
    Peers out,        // of each rank: [n], read and written by the parent
    Flags flags,      // of each rank: [blocks][FLAGS]
    unsigned* own,    // [blocks][FLAGS], this rank's flags
    unsigned* error,  // [1], not 0 after a rank did not come
    int rank, int n, long long patience) {
  if (next_run(own, error) == 0) return;
  int block = blockIdx.x * FLAGS, peer = threadIdx.x;
  int part = (n + gridDim.x - 1) / gridDim.x;
  int slices = part > SLICE ? (part + SLICE - 1) / SLICE : 1;
  unsigned before = own[block + DONE + 1];  // slices of earlier runs
  __syncthreads();
  bool leaf = is_leaf(rank), late = false;
  unsigned* up = flags.of[parent(rank)] + block + READY + rank;
  if (leaf && peer == 0) signal(up, before + slices);

  for (int turn = 0; turn < slices + LAG; ++turn) {
    if (!leaf && turn < slices) {
      unsigned ready = before + turn + 1;
      if (is_child(peer, rank))
        late = !arrived(own + block + READY + peer, ready, patience, error);
      if (__syncthreads_or(late)) return;
      int begin = blockIdx.x * part + turn * SLICE;
      int stop = min((int)(blockIdx.x + 1) * part, n);
      add_children(in, out, rank, begin, min(begin + SLICE, stop));
      __syncthreads();  // all threads have stored the slice
      if (rank > 0 && peer == 0) signal(up, ready);
      if (rank == 0 && is_child(peer, rank))
        signal(flags.of[peer] + block + DONE, ready);
    }
    if (rank > 0 && turn >= LAG) {
      unsigned done = before + turn - LAG + 1;
      if (peer == 0)
        late = !arrived(own + block + DONE, done, patience, error);
      if (__syncthreads_or(late)) return;
      if (leaf) continue;
      int begin = blockIdx.x * part + (turn - LAG) * SLICE;
      int stop = min((int)(blockIdx.x + 1) * part, n);
      pass_down(out, rank, begin, min(begin + SLICE, stop));
      __syncthreads();
      if (is_child(peer, rank))
        signal(flags.of[peer] + block + DONE, done);
    }
  }
  if (peer == 0) own[block + DONE + 1] = before + slices;
}
