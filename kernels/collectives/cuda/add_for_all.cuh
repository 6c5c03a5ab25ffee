// Shared by the collectives in which one rank adds for all ranks.

// Elements first, first + (threads of the grid) ... below `end`: adds them
// over all ranks in their order, and writes the sums to all ranks. A load
// from a peer takes about a microsecond, so each thread has UNROLL loads
// from each rank under way.
__device__ inline void add_for_all(const Peers& in, const Peers& out,
                                   int first, int end) {
  int stride = gridDim.x * blockDim.x;
  for (int i = first; i < end; i += UNROLL * stride) {
    Vec terms[UNROLL][RANKS];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
#pragma unroll
      for (int peer = 0; peer < RANKS; ++peer)
        if (i + u * stride < end)
          terms[u][peer] = in.of[peer][i + u * stride];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (i + u * stride >= end) break;
      Vec sum = terms[u][0];
#pragma unroll
      for (int peer = 1; peer < RANKS; ++peer) sum = sum + terms[u][peer];
#pragma unroll
      for (int peer = 0; peer < RANKS; ++peer)
        out.of[peer][i + u * stride] = sum;
    }
  }
}
