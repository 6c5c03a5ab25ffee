// Winograd in one kernel: input tiles are transformed, multiplied and
// transformed back on the chip.
//
// Idea: a block computes BK filters x 32 output tiles, BC channels at
// a time. Each thread transforms one input tile into shared memory.
// Each warp then multiplies T*T / WARPS positions, [BK x BC] by
// [BC x 32] each, with its sums in registers. The next channels are
// loaded meanwhile: filters by cp.async, pixels into registers. At the
// end the sums go through shared memory to the threads that transform
// them back. The only workspace holds the transformed filters, which
// 07_winograd_filter.cu writes once.
// What limits it: the registers and shared memory of the SM. Each
// position needs a tile of sums, so BK and the 32 tiles must be small.
// With M = 4 a float from shared memory is used less often than with
// M = 2. The input is transformed again for every BK filters.
//
// Launch: grid (ceil(tiles / 32), ceil(K / BK)), block 32 * WARPS, in
// shared memory 8 * T*T * BC * (BK + 32) bytes. M, BK, BC and WARPS
// are defines.

#include "../../cuda/async.cuh"
#include "winograd.cuh"

constexpr int THREADS = 32 * WARPS, TILES = 32;
constexpr int EACH = T * T / WARPS;      // positions of one warp
constexpr int TN = BK * TILES / 32 / 8;  // one lane: 8 filters, TN tiles
constexpr int ACROSS = TILES / TN;       // lanes along the tiles
constexpr int DOWN = 32 / ACROSS;        // lanes along the filters
constexpr int BLOCKS = EACH * 8 * TN > 64 ? 1 : 512 / THREADS;  // an SM
static_assert(T * T % WARPS == 0 && BC <= WARPS, "work for each");

extern "C" __global__ void
__launch_bounds__(THREADS, BLOCKS) winograd_fused(
    const float* __restrict__ input,  // x [N, C, H, W]
    const float* __restrict__ U,      // [T*T, C, round_up_4(K)]
    float* __restrict__ output,       // y [N, K, P, Q]
    Conv shape) {
  extern __shared__ __align__(16) float shared[];
  auto tile_u = (float(*)[T * T][BC][BK])shared;      // 2 stages
  auto tile_v =                                       // 2 stages
      (float(*)[T * T][BC][TILES])&tile_u[2][0][0][0];
  Tiles tiles = tiles_of(shape);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The thread loads and stores this tile.
  int tile = blockIdx.x * TILES + lane;
  TileCorner corner = tile_corner(tiles, tile);
  int block_k = blockIdx.y * BK, row_length = round_up_4(shape.K);
  // It multiplies filters from lane_k on and tiles from lane_tile on.
  int lane_k = (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int lane_tile = lane / 2 % ACROSS * 4;
  // It copies 4 filters of U from here on.
  int load_k = lane % (BK / 4) * 4, load_c = lane / (BK / 4);

  float d[T][T];
  // Begins to copy the channels from c_tile on. A warp copies the
  // filters of its own positions.
  auto load = [&](int stage, int c_tile) {
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      int position = warp * EACH + e;
      const float* u = U +
          ((size_t)position * shape.C + c_tile + load_c) * row_length +
          block_k + load_k;
#pragma unroll
      for (int c = 0; c < BC; c += 128 / BK)
        copy_async<16>(&tile_u[stage][position][load_c + c][load_k],
                       u + (size_t)c * row_length,
                       c_tile + load_c + c < shape.C &&
                           block_k + load_k < row_length);
    }
    close_group();
    if (warp < BC)
      load_tile(input, shape, corner, c_tile + warp,
                tile < tiles.count && c_tile + warp < shape.C, d);
  };
  auto transform = [&](int stage) {
    if (warp >= BC) return;
    float v[T][T];
    transform_2d(BT, d, v);
#pragma unroll
    for (int position = 0; position < T * T; ++position)
      tile_v[stage][position][warp][lane] =
          v[position / T][position % T];
  };

  float sum[EACH][8][TN] = {};
  load(0, 0);
  transform(0);
#pragma unroll 1
  for (int c_tile = 0, stage = 0; c_tile < shape.C;
       c_tile += BC, stage ^= 1) {
    wait_groups<0>();
    __syncthreads();
    bool more = c_tile + BC < shape.C;
    if (more) load(stage ^ 1, c_tile + BC);
#pragma unroll
    for (int e = 0; e < EACH; ++e)
#pragma unroll
      for (int c = 0; c < BC; ++c) {
        const float* u = &tile_u[stage][warp * EACH + e][c][lane_k];
        const float* v = &tile_v[stage][warp * EACH + e][c][lane_tile];
        __align__(16) float a[8], b[TN];
#pragma unroll
        for (int i = 0; i < 8; i += 4)
          *(float4*)&a[i] = *(float4*)&u[i * DOWN];
#pragma unroll
        for (int j = 0; j < TN; j += 4)
          *(float4*)&b[j] = *(float4*)&v[j * ACROSS];
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) sum[e][i][j] += a[i] * b[j];
      }
    if (more) transform(stage ^ 1);
  }

  // Two of a lane's 8 filters at a time: 2 * DOWN filters of the block
  // are in shared memory.
  auto tile_z = (float(*)[2 * DOWN][TILES])shared;  // [T*T]
#pragma unroll
  for (int first_i = 0; first_i < 8; first_i += 2) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4)
          *(float4*)&tile_z[warp * EACH + e][lane_k / 2 + i]
                           [lane_tile + j * ACROSS] =
              *(float4*)&sum[e][first_i + i][j];
    __syncthreads();
#pragma unroll 1
    for (int z_row = warp; z_row < 2 * DOWN; z_row += WARPS) {
      int k = block_k + z_row / 2 * 4 + first_i % 4 + z_row % 2 +
              first_i / 4 * 4 * DOWN;
      float z[T][T], out[M][M];
#pragma unroll
      for (int position = 0; position < T * T; ++position)
        z[position / T][position % T] = tile_z[position][z_row][lane];
      transform_2d(AT, z, out);
      if (k < shape.K && tile < tiles.count)
        store_tile(output, shape, corner, k, out);
    }
  }
}
