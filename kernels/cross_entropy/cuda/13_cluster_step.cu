// Loss and gradient of cross-entropy in one kernel, a cluster of blocks
// per row.
//
// Idea: a row of 11 fills the shared memory of an SM. While its one
// block loads, nothing is stored, and while it stores, nothing is
// loaded. Here the CLUSTER blocks of a cluster keep the row in their
// registers, PER floats in each thread, and each SM has blocks of
// several rows. One of them loads while another one stores. A thread
// replaces its floats by exp(x - m), with its own maximum m, and adds
// them. Each warp stores its m and l in its block's shared memory.
// After a barrier of the cluster, each warp reads those of all warps of
// all blocks. x is read once, and longer rows than those of 11 fit. dx
// is stored as streaming: its lines leave the L2 first.
// What limits it: HBM alone. And a row, with up to 3 floats before it,
// must fit into the registers: N + 3 <= CLUSTER * BLOCK * PER.
//
// Launch: grid M * CLUSTER, block BLOCK, whole warps. CLUSTER, BLOCK
// and PER, a multiple of 4, are defines.

#include "../../cuda/cluster.cuh"
#include "cross_entropy.cuh"

constexpr int FOURS = PER / 4;              // of a thread
constexpr int ALL_WARPS = CLUSTER * WARPS;  // of the cluster
constexpr int TURN = 4 * CLUSTER * BLOCK;   // floats of all threads

// Returns columns col .. col + 3 of x [N]. Columns outside the row are
// -infinity: they change neither m nor l.
__device__ inline float4 load_four(const float* x, int col, int N) {
  if (col >= 0 && col + 4 <= N) return *(const float4*)(x + col);
  float four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    four[j] = col + j >= 0 && col + j < N ? x[col + j] : -INFINITE;
  return {four[0], four[1], four[2], four[3]};
}

// Stores four gradients in columns col .. col + 3 of dx [N], except
// columns outside the row.
__device__ inline void store_four(float* dx, int col, int N,
                                  const float (&four)[4]) {
  if (col >= 0 && col + 4 <= N) {
    __stcs((float4*)(dx + col), float4{four[0], four[1], four[2], four[3]});
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (col + j >= 0 && col + j < N) dx[col + j] = four[j];
}

// Returns m and l of all lanes of the warp together.
__device__ inline Running over_warp(Running part) {
#pragma unroll
  for (int lane_mask = 16; lane_mask; lane_mask /= 2) {
    float other_m = __shfl_xor_sync(~0u, part.m, lane_mask);
    float other_l = __shfl_xor_sync(~0u, part.l, lane_mask);
    part = merge(part, {other_m, other_l});
  }
  return part;
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
__launch_bounds__(BLOCK) cluster_step(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    const float* __restrict__ g,     // [M]
    float* __restrict__ loss,        // [M]
    float* __restrict__ dx,          // [M, N]
    int N) {
  __shared__ __align__(8) Running of_warp[WARPS];
  int row = blockIdx.x / CLUSTER, thread = threadIdx.x;
  int rank = rank_in_cluster();
  x += (size_t)row * N, dx += (size_t)row * N;  // [N]
  // The column of this thread's first float. The groups of four begin
  // at multiples of 16 bytes, the first up to 3 floats before the row.
  int first = 4 * (rank * BLOCK + thread) - (int)((size_t)x % 16 / 4);

  float4 values[FOURS];
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
    values[i] = load_four(x, first + i * TURN, N);
  int label = labels[row];
  float picked = x[label], row_g = g[row];

  Running own = {LOWEST, 0.0f};
#pragma unroll
  for (int i = 0; i < FOURS; ++i) own.m = fmaxf(own.m, max_of(values[i]));
#pragma unroll
  for (int i = 0; i < FOURS; ++i) {
    float4 v = values[i];
    values[i] = {__expf(v.x - own.m), __expf(v.y - own.m),
                 __expf(v.z - own.m), __expf(v.w - own.m)};
    own.l += (values[i].x + values[i].y) + (values[i].z + values[i].w);
  }

  Running all = over_warp(own);
  if (thread % 32 == 0) of_warp[thread / 32] = all;
  arrive_at_cluster();
  wait_for_cluster();
  all = {LOWEST, 0.0f};
  for (int warp = thread % 32; warp < ALL_WARPS; warp += 32) {
    float2 m_l = load_from(warp / WARPS, of_warp + warp % WARPS);
    all = merge(all, {m_l.x, m_l.y});
  }
  all = over_warp(all);
  arrive_at_cluster();

  if (rank == 0 && thread == 0) loss[row] = logf(all.l) - (picked - all.m);
  float factor = __expf(own.m - all.m) * (row_g / all.l);
#pragma unroll
  for (int i = 0; i < FOURS; ++i) {
    int col = first + i * TURN;
    float out[4] = {values[i].x * factor, values[i].y * factor,
                    values[i].z * factor, values[i].w * factor};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (col + j == label) out[j] -= row_g;
    store_four(dx, col, N, out);
  }
  wait_for_cluster();  // no block ends while others read its memory
}
