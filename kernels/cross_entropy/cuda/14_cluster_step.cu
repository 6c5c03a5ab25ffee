// Loss and gradient of cross-entropy in one kernel, a cluster of blocks
// per row.
//
// Idea: a row of 11 fills the shared memory of an SM. While its one
// block loads, nothing is stored, and while it stores, nothing is
// loaded. Here the CLUSTER blocks of a cluster divide a row, as in 13.
// Each SM has blocks of several rows. One of them loads while another
// one stores. x is read once, and longer rows than those of 11 fit. dx
// is marked as streaming: its lines leave the L2 first.
// What limits it: HBM alone. A part of a row must fit into the shared
// memory of an SM.
//
// Launch: grid M * CLUSTER, block BLOCK, whole warps. Shared memory:
// 16 bytes for each four floats of a part. BLOCK and CLUSTER are
// defines.

#include "cluster_row.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
__launch_bounds__(BLOCK) cluster_step(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    const float* __restrict__ g,     // [M]
    float* __restrict__ loss,        // [M]
    float* __restrict__ dx,          // [M, N]
    int N) {
  extern __shared__ __align__(128) float4 kept[];  // [part.fours]
  __shared__ __align__(8) Running of_warp[WARPS];
  __shared__ Barrier full;
  int row = blockIdx.x / CLUSTER, thread = threadIdx.x;
  int rank = rank_in_cluster();
  x += (size_t)row * N, dx += (size_t)row * N;  // [N]
  Part part = part_of(x, N, rank);
  if (thread == 0) begin_load(kept, x, part, &full);
  int label = labels[row];
  float picked = x[label], row_g = g[row];
  float other = part.other < 0 ? 0.0f : x[part.other];

  __syncthreads();  // the barrier is initialised
  wait(&full, 0);
  Running own = running_of(kept, part.fours);
  if (part.other >= 0) own = merge(own, {other, 1.0f});
  own = over_warp(own);
  if (thread % 32 == 0) of_warp[thread / 32] = own;
  arrive_at_cluster();
  wait_for_cluster();
  Running all = over_cluster(of_warp);
  arrive_at_cluster();

  if (rank == 0 && thread == 0) loss[row] = logf(all.l) - (picked - all.m);
  float factor = row_g / all.l;
  auto gradient = [&](float value, int col) {
    float weighted_p = __expf(value - all.m) * factor;
    return col == label ? weighted_p - row_g : weighted_p;
  };
  float4* dx4 = (float4*)(dx + part.start);  // [part.fours]
#pragma unroll 4
  for (int i = thread; i < part.fours; i += BLOCK) {
    float4 value = kept[i];
    int col = part.start + 4 * i;
    __stcs(dx4 + i, float4{gradient(value.x, col),
                           gradient(value.y, col + 1),
                           gradient(value.z, col + 2),
                           gradient(value.w, col + 3)});
  }
  if (part.other >= 0) dx[part.other] = gradient(other, part.other);
  wait_for_cluster();  // no block ends while another reads its memory
}
