// Shared by the kernels with a cluster of blocks per row: the copy
// engine loads a part of the row for each block, and the blocks
// exchange maximum and sum. BLOCK and CLUSTER are defines.

#include "../../cuda/bulk.cuh"
#include "../../cuda/cluster.cuh"
#include "cross_entropy.cuh"

constexpr int ALL_WARPS = CLUSTER * WARPS;  // of the cluster

// The part of a row x [N] in this block's shared memory: `fours`
// groups of four floats from column `start` on, at a multiple of 16
// bytes. The first block also has the columns that no group contains:
// up to 3 at each end of the row, one for each of its first threads.
struct Part {
  int start, fours;
  int other;  // a column of this thread alone, or -1
};

__device__ inline Part part_of(const float* x, int N, int rank) {
  int before = floats_before_16(x, N), fours = (N - before) / 4;
  int length = (fours + CLUSTER - 1) / CLUSTER;  // of most parts
  int first = min(rank * length, fours), thread = threadIdx.x;
  Part part = {before + 4 * first, min(length, fours - first), -1};
  if (rank == 0 && thread < N - 4 * fours)
    part.other = thread < before ? thread : thread + 4 * fours;
  return part;
}

// Begins to load the part. One thread calls it, before a barrier of
// the block.
__device__ inline void begin_load(float4* to, const float* x, Part part,
                                  Barrier* full) {
  init_barrier(full, 1);
  publish_barriers();
  arrive_expecting(full, 16 * part.fours);
  if (part.fours) load_bytes(to, x + part.start, 16 * part.fours, full);
}

// Returns m and l of this thread's share of the part.
__device__ inline Running running_of(const float4* kept, int fours) {
  Running own = {LOWEST, 0.0f};
  for (int i = threadIdx.x; i < fours; i += BLOCK)
    own.m = fmaxf(own.m, max_of(kept[i]));
  for (int i = threadIdx.x; i < fours; i += BLOCK)
    own.l += sum_of_exp(kept[i], own.m);
  return own;
}

// Returns m and l of all lanes of the warp together.
__device__ inline Running over_warp(Running part) {
  for (int lane_mask = 16; lane_mask; lane_mask /= 2) {
    float other_m = __shfl_xor_sync(~0u, part.m, lane_mask);
    float other_l = __shfl_xor_sync(~0u, part.l, lane_mask);
    part = merge(part, {other_m, other_l});
  }
  return part;
}

// Returns m and l of the row: a warp reads those of all warps of the
// cluster, after its barrier.
__device__ inline Running over_cluster(const Running* of_warp) {
  Running all = {LOWEST, 0.0f};
  for (int warp = threadIdx.x % 32; warp < ALL_WARPS; warp += 32) {
    float2 m_l = load_from(warp / WARPS, of_warp + warp % WARPS);
    all = merge(all, {m_l.x, m_l.y});
  }
  return over_warp(all);
}
