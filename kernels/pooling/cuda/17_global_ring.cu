// Global average pooling, a ring of tiles that the copy engine fills.
//
// Idea: as in 15, PLANES planes are one contiguous piece, and SHARE
// lanes add up each plane of it in shared memory. But a block of 15
// ends with its tile: it loads, adds up, and the next block begins
// with an empty tile. Here a block has STAGES tiles of shared memory.
// While its threads add up one, the copy engine fills the others: one
// instruction of one thread loads a whole tile, past the registers.
// The threads wait at an mbarrier until the bytes have come. As in 15, the lines of x
// leave the L2 first.
// What limits it: HBM.
//
// Launch: any grid, block PLANES * SHARE, shared memory
// 4 * STAGES * PLANES * area bytes. Block b takes tiles b, b + grid,
// ... PLANES, SHARE and STAGES are defines, PLANES a multiple of 32,
// SHARE a power of two up to 32.

#include "../../cuda/hopper.cuh"

constexpr int BLOCK = PLANES * SHARE;

// Begins to copy `bytes` contiguous bytes, a multiple of 16, to shared
// memory. The barrier counts them. Lines of the L2 that this fills are
// the first to be replaced.
__device__ inline void load_bytes(void* to, const void* from, int bytes,
                                  Barrier* barrier) {
  asm volatile(
      "{\n.reg .b64 first;\n"
      "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1], %2, [%3], first;\n}" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Begins to load `count` contiguous floats. The copy engine moves 16
// bytes at a time. The last tile may end with up to 3 floats more:
// this thread copies them itself.
__device__ inline void load_tile(float* tile, const float* x, int count,
                                 Barrier* full) {
  int fours = count / 4 * 4;
  for (int i = fours; i < count; ++i) tile[i] = x[i];
  arrive_expecting(full, 4 * fours);
  if (fours) load_bytes(tile, x, 4 * fours, full);
}

extern "C" __global__ void __launch_bounds__(BLOCK) global_ring(
    const float* __restrict__ x,  // [planes, area], planes = N * C
    float* __restrict__ y,        // [planes]
    int planes, int area) {       // area = H * W
  extern __shared__ __align__(128) float ring[];  // [STAGES, PLANES, area]
  __shared__ Barrier full[STAGES];
  int tiles = (planes - 1) / PLANES + 1;

  // Begins to load tile number `index` to its stage, if there is one.
  auto load = [&](int index, int stage) {
    if (index >= tiles) return;
    int first = index * PLANES;  // plane
    load_tile(ring + stage * PLANES * area, x + (size_t)first * area,
              min(PLANES, planes - first) * area, full + stage);
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage)
      init_barrier(full + stage, 1);
    publish_barriers();
    for (int stage = 0; stage < STAGES; ++stage)
      load(blockIdx.x + stage * gridDim.x, stage);
  }
  __syncthreads();

  int plane = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  int stage = 0, parity = 0;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    int first = index * PLANES;
    const float* pixels = ring + (stage * PLANES + plane) * area;
    wait(full + stage, parity);
    float sum = 0.0f;
    if (first + plane < planes)
      for (int pixel = lane; pixel < area; pixel += SHARE)
        sum += pixels[pixel];
    for (int lane_mask = SHARE / 2; lane_mask; lane_mask /= 2)
      sum += __shfl_xor_sync(~0u, sum, lane_mask);
    if (lane == 0 && first + plane < planes)
      y[first + plane] = sum / area;

    __syncthreads();  // all have read this stage
    if (threadIdx.x == 0) load(index + STAGES * gridDim.x, stage);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
}
