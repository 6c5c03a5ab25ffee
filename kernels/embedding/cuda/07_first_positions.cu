// Sorting tokens, fourth launch: where each token begins.
//
// Idea: in sorted order a token begins after all smaller tokens. One
// block computes these sums, PER tokens a thread and BLOCK * PER in a
// turn. The lanes of a warp add up their sums in five steps. The sums
// of the warps are in shared memory.
// What limits it: one SM works alone, turn after turn.
//
// Launch: grid 1, block BLOCK, whole warps. BLOCK and PER are defines.

constexpr int WARPS = BLOCK / 32;

extern "C" __global__ void __launch_bounds__(BLOCK) first_positions(
    const int* __restrict__ totals,  // [V]
    int* __restrict__ first,         // [V]
    int V) {
  __shared__ int of_warp[WARPS];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int before = 0;  // all tokens of earlier turns
  for (int turn = 0; turn < V; turn += BLOCK * PER) {
    int token = turn + threadIdx.x * PER;
    int counts[PER], own = 0;
#pragma unroll
    for (int i = 0; i < PER; ++i) {
      counts[i] = token + i < V ? totals[token + i] : 0;
      own += counts[i];
    }
    int upto = own;  // of this lane and those before it in the warp
    for (int distance = 1; distance < 32; distance *= 2) {
      int other = __shfl_up_sync(~0u, upto, distance);
      if (lane >= distance) upto += other;
    }
    if (lane == 31) of_warp[warp] = upto;
    __syncthreads();
    int position = before + upto - own;
    for (int w = 0; w < WARPS; ++w) {
      if (w < warp) position += of_warp[w];
      before += of_warp[w];
    }
#pragma unroll
    for (int i = 0; i < PER; ++i) {
      if (token + i < V) first[token + i] = position;
      position += counts[i];
    }
    __syncthreads();  // all threads have read of_warp
  }
}
