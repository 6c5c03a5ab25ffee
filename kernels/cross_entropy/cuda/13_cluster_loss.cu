// Cross-entropy by a cluster of blocks per row.
//
// Idea: a warp of 05 has a few loads under way, and each new one waits
// for a register. Here the CLUSTER blocks of a cluster divide a row.
// One thread of each block lets the copy engine load the block's part
// to shared memory, with one instruction. So an SM has 200 KB under way.
// Each warp computes m and l of its share. The blocks of a cluster run
// at the same time and read each other's shared memory: after a
// barrier of the cluster, one warp merges the parts of all warps.
// What limits it: HBM.
//
// Launch: grid M * CLUSTER, block BLOCK, whole warps. Shared memory:
// 16 bytes for each four floats of a part. BLOCK and CLUSTER are
// defines.

#include "cluster_row.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
__launch_bounds__(BLOCK) cluster_loss(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    float* __restrict__ loss,        // [M]
    float* __restrict__ lse,         // [M]
    int N) {
  extern __shared__ __align__(128) float4 kept[];  // [part.fours]
  __shared__ __align__(8) Running of_warp[WARPS];
  __shared__ Barrier full;
  int row = blockIdx.x / CLUSTER, thread = threadIdx.x;
  int rank = rank_in_cluster();
  x += (size_t)row * N;  // [N]
  Part part = part_of(x, N, rank);
  if (thread == 0) begin_load(kept, x, part, &full);
  float picked = x[labels[row]];
  float other = part.other < 0 ? 0.0f : x[part.other];

  __syncthreads();  // the barrier is initialised
  wait(&full, 0);
  Running own = running_of(kept, part.fours);
  if (part.other >= 0) own = merge(own, {other, 1.0f});
  own = over_warp(own);
  if (thread % 32 == 0) of_warp[thread / 32] = own;
  arrive_at_cluster();
  wait_for_cluster();
  if (rank == 0 && thread < 32) {
    Running all = over_cluster(of_warp);
    if (thread == 0) {
      lse[row] = all.m + logf(all.l);
      loss[row] = logf(all.l) - (picked - all.m);
    }
  }
  arrive_at_cluster();
  wait_for_cluster();  // no block ends while another reads its memory
}
