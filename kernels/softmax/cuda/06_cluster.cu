// Softmax by a cluster of blocks per row: a long row is read once.
//
// Idea: a row that does not fit into the registers of one block is cut
// into parts for the CLUSTER blocks of a cluster. They run at the same
// time and can read each other's shared memory. A thread keeps PER
// floats. It replaces them by exp(x - m), with its own maximum m, and
// adds them. Each warp stores its m and l in its block's shared memory.
// After one barrier of the cluster, each warp reads m and l of all
// warps of all blocks. A thread then only multiplies its exponentials
// by exp(own m - m) / l. x is read once, 16 bytes at a time.
// What limits it: HBM alone. And a row, with up to 3 floats before it,
// must fit into the registers: N + 3 <= CLUSTER * BLOCK * PER.
//
// Launch: grid M * CLUSTER, block BLOCK, whole warps. CLUSTER, BLOCK
// and PER, a multiple of 4, are defines.

#include "../../cuda/cluster.cuh"
#include "long_rows.cuh"

constexpr int FOURS = PER / 4;              // of a thread
constexpr int ALL_WARPS = CLUSTER * WARPS;  // of the cluster

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
__launch_bounds__(BLOCK) cluster(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ __align__(8) Running of_warp[WARPS];
  int thread = threadIdx.x;
  size_t row = blockIdx.x / CLUSTER;
  x += row * N, y += row * N;  // [N]
  Part part = part_of(x, N, rank_in_cluster(), CLUSTER);
  int first = part.start + 4 * thread;

  float4 values[FOURS];
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
    values[i] = load_four(x, first + i * 4 * BLOCK, part.end);

  Running own = {-INFINITE, 0.0f};
#pragma unroll
  for (int i = 0; i < FOURS; ++i) own.m = fmaxf(own.m, max_of(values[i]));
#pragma unroll
  for (int i = 0; i < FOURS; ++i) {
    values[i] = exp_of(values[i], finite(own.m));
    own.l += sum_of(values[i]);
  }

  Running all = over_warp(own);
  if (thread % 32 == 0) of_warp[thread / 32] = all;
  arrive_at_cluster();
  wait_for_cluster();
  all = {-INFINITE, 0.0f};
  for (int warp = thread % 32; warp < ALL_WARPS; warp += 32) {
    float2 m_l = load_from(warp / WARPS, of_warp + warp % WARPS);
    all = merge(all, {m_l.x, m_l.y});
  }
  all = over_warp(all);
  arrive_at_cluster();

  float factor = __expf(own.m - finite(all.m)) / all.l;
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
    store_four(y, first + i * 4 * BLOCK, part.end, values[i], factor);
  wait_for_cluster();  // no block ends while others read its memory
}
