// Global average pooling, a tile of planes that the copy engine loads.
//
// Idea: as in 15, a block's PLANES planes are one contiguous piece, and
// SHARE lanes add up each plane of it in shared memory. But in 15 the
// threads carry the piece through their registers, a few loads at a
// time. Here one instruction of one thread loads all of it, and no
// register holds a byte. So each block has its whole tile under way
// from its first cycles on. The others wait at an mbarrier until the
// bytes have come. As in 15, the lines of x leave the L2 first.
// What limits it: HBM. Tiles of 6 to 13 KB are large enough, and small
// enough for 16 or more blocks on an SM: some load while others add.
//
// Launch: grid ceil(planes / PLANES), block PLANES * SHARE, shared
// memory 4 * PLANES * area bytes. PLANES and SHARE are defines, PLANES
// a multiple of 32, SHARE a power of two up to 32.

#include "../../cuda/hopper.cuh"

constexpr int BLOCK = PLANES * SHARE;

// Begins to copy `bytes` contiguous bytes to shared memory, a multiple
// of 16 at multiples of 16. The barrier counts them. Lines of the L2
// that this fills are the first to be replaced.
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

extern "C" __global__ void __launch_bounds__(BLOCK) global_bulk(
    const float* __restrict__ x,  // [planes, area], planes = N * C
    float* __restrict__ y,        // [planes]
    int planes, int area) {       // area = H * W
  extern __shared__ __align__(128) float tile[];  // [PLANES, area]
  __shared__ Barrier full;
  int first = blockIdx.x * PLANES;  // plane
  int count = min(PLANES, planes - first) * area;
  x += (size_t)first * area;

  if (threadIdx.x == 0) {
    init_barrier(&full, 1);
    publish_barriers();
    // The copy engine moves 16 bytes at a time. The last tile may have
    // up to 3 floats more: this thread copies them itself.
    int fours = count / 4 * 4;
    arrive_expecting(&full, 4 * fours);
    if (fours) load_bytes(tile, x, 4 * fours, &full);
    for (int i = fours; i < count; ++i) tile[i] = x[i];
  }
  __syncthreads();  // the barrier and the last floats are there
  wait(&full, 0);

  int plane = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  float sum = 0.0f;
  if (first + plane < planes)
    for (int pixel = lane; pixel < area; pixel += SHARE)
      sum += tile[plane * area + pixel];
  for (int lane_mask = SHARE / 2; lane_mask; lane_mask /= 2)
    sum += __shfl_xor_sync(~0u, sum, lane_mask);
  if (lane == 0 && first + plane < planes) y[first + plane] = sum / area;
}
